"""Children of every kind, made in the middle of passes; exec; each has an engine of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.children import compile_child
from support.hazards import NONE, RUNS, answer, pages, resting

from giveback.remote import engine


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_child(tmp_path_factory.mktemp("forks"), "hazard_forks")


@pytest.mark.parametrize(
    ("kind", "count", "where"),
    [
        ("fork", 150, "main"),
        ("fork", 60, "threads"),
        ("_Fork", 150, "main"),
        ("_Fork", 150, "handler"),
        ("vfork", 100, "main"),
        ("spawn", 100, "main"),
    ],
)
def test_children_that_allocate(program: Path, kind: str, count: int, where: str) -> None:
    """Each verifies what it inherited, allocates, and ends; one that hangs is ended by its alarm.

    Without the gate in front of _Fork, one child in ten hangs.
    """
    found = answer(program, "storm", kind, str(count), where, "allocates")
    if "missing" in found:
        pytest.skip(found["missing"])
    assert (found["children"], found["hung"], found["wrong"]) == (count, 0, 0), found
    assert found["state"] == RUNS
    assert found["looks"] > count / 2, "the children were not made while the engine worked"
    assert found["returned"] > 20 << 20


def test_raw_clone_children_that_do_not_allocate(program: Path) -> None:
    """Neither they nor the parent are harmed.

    Those that allocate may find an arena locked (docs/safety.md): here about one in ten would.
    """
    found = answer(program, "storm", "clone", "150", "main", "idle")
    assert (found["children"], found["hung"], found["wrong"]) == (150, 0, 0), found
    assert found["state"] == RUNS
    assert found["returned"] > 20 << 20


def test_a_child_that_lives_has_an_engine_of_its_own(program: Path) -> None:
    with resting(program, "own") as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        (of_parent,) = pages(parent.pid)
        (of_child,) = pages(child)
        assert of_parent != of_child
        for pid in (parent.pid, child):
            assert engine.read(pid).state == "runs"
            assert engine.read(pid).returned > 0
        assert engine.read(child).started_ns > engine.read(parent.pid).started_ns
        output, errors = parent.communicate("", 30)
        assert (parent.returncode, errors) == (0, ""), output
    assert pages(parent.pid) == []


def test_the_child_of_a_vfork_starts_no_engine(program: Path) -> None:
    """It allocates in its parent's memory, much enough for a start; the parent then starts one."""
    found = answer(program, "vfork-first")
    assert found["state_after_child"] == NONE
    assert found["state"] == RUNS


def test_exec_in_the_middle_of_passes(program: Path) -> None:
    """Fifty programs in one process, one after the other; each shows its own figures, or none."""
    with resting(program, "exec", "50") as child:
        (page,) = pages(child.pid)
        assert str(page) in Path(f"/proc/{child.pid}/maps").read_text()
        assert engine.read(child.pid).state == "runs"
        output, errors = child.communicate("", 30)
        assert (child.returncode, output, errors) == (0, "", "")
    assert pages(child.pid) == []
