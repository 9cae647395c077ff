"""Seccomp filters, before and after the start; libraries for RDMA; userfaultfd."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.children import compile_child, compile_program
from support.hazards import NONE, RDMA, REFUSES, RUNS, SANDBOX, USERFAULTFD, answer

MADVISE = 1
"""Of `path`: one range a call, no newer system call."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_child(tmp_path_factory.mktemp("sandbox"), "hazard_sandbox")


@pytest.mark.parametrize("action", ["errno", "kill"])
def test_a_filter_that_was_there_before(program: Path, action: str) -> None:
    """The engine works with what every program may do, and tries nothing else."""
    found = answer(program, "before", action)
    if "missing" in found:
        pytest.skip(found["missing"])
    assert (found["state"], found["reason"], found["path"]) == (RUNS, 0, MADVISE)
    assert found["returned"] > 8 << 20


def test_a_filter_that_is_set_while_the_engine_works(program: Path) -> None:
    """It kills at all that an engine does; nothing is done any more, not even at the exit."""
    found = answer(program, "after")
    if "missing" in found:
        pytest.skip(found["missing"])
    assert (found["state"], found["reason"]) == (REFUSES, SANDBOX)
    assert (found["more"], found["released"]) == (0, SANDBOX)
    assert found["returned"] > 0


def test_an_engine_that_is_stopped_before_it_knows_of_the_filter(program: Path) -> None:
    """Which kills at the signal that would wake its thread."""
    found = answer(program, "stop")
    if "missing" in found:
        pytest.skip(found["missing"])
    assert found["state"] == NONE


@pytest.mark.parametrize("mode", ["self", "retry"])
def test_a_program_that_shuts_itself_in_before_the_start(program: Path, mode: str) -> None:
    found = answer(program, mode)
    if "missing" in found:
        pytest.skip(found["missing"])
    assert found["state"] in {NONE, REFUSES}
    assert found["state"] == NONE or found["reason"] == SANDBOX
    assert found["returned"] == 0


@pytest.mark.parametrize("when", ["before", "after"])
def test_libraries_for_rdma(tmp_path: Path, program: Path, when: str) -> None:
    built = compile_program(tmp_path, "int ibv_nothing;\n", "-shared", "-fPIC")
    library = str(built.rename(tmp_path / "libibverbs.so.1"))
    found = answer(program, "library", *([library, ""] if when == "before" else ["", library]))
    assert (found["state"], found["reason"]) == (REFUSES, RDMA)
    assert (found["more"], found["released"]) == (0, RDMA)
    assert (found["returned"] > 0) is (when == "after")


def test_memory_under_userfaultfd(program: Path) -> None:
    found = answer(program, "userfaultfd")
    if "missing" in found:
        pytest.skip(found["missing"])
    assert (found["state"], found["reason"]) == (REFUSES, USERFAULTFD)
    assert (found["returned"], found["released"]) == (0, USERFAULTFD)
