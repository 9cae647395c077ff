"""Memory that is locked or limited, threads and descriptors that are not to be had."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.children import compile_child
from support.hazards import (
    FIERCE,
    LOCKED,
    NO_MEMORY,
    NO_PROC,
    NO_THREAD,
    REFUSES,
    RUNS,
    answer,
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_child(tmp_path_factory.mktemp("limits"), "hazard_limits")


@pytest.mark.parametrize("when", ["before", "after"])
def test_locked_memory_is_left_alone(program: Path, when: str) -> None:
    found = answer(program, "mlockall", when)
    if "missing" in found:
        pytest.skip(found["missing"])
    assert found["returned_locked"] == 0
    assert found["refused"][str(LOCKED)] > 3
    assert found["state"] == RUNS
    # Half a second of a program at rest.
    assert found["wakeups_at_rest"] <= 2
    assert found["cpu_ns_at_rest"] < 5_000_000


@pytest.mark.parametrize(
    ("limit", "during"),
    [
        ("NPROC", {(REFUSES, NO_THREAD)}),
        ("AS", {(REFUSES, NO_THREAD), (REFUSES, NO_MEMORY)}),
        # Its figures are private then, but it works.
        ("FSIZE", {(RUNS, 0)}),
        ("NOFILE", {(REFUSES, NO_PROC), (RUNS, 0)}),
    ],
)
def test_too_little_for_a_start(program: Path, limit: str, during: set[tuple[int, int]]) -> None:
    """The program runs on; it is told why there is no engine; it starts once there is enough."""
    found = answer(program, "no-thread", limit)
    if "missing" in found:
        pytest.skip(found["missing"])
    assert (found["state_during"], found["reason_during"]) in during
    assert (found["state"], found["reason"]) == (RUNS, 0)
    assert found["returned"] > 0


def test_no_memory_for_anything_while_it_works(program: Path) -> None:
    found = answer(program, "tight")
    assert (found["state"], found["reason"]) in {(RUNS, 0), (REFUSES, NO_MEMORY)}
    assert set(found["refused"]) <= {str(NO_MEMORY)}


@pytest.mark.parametrize("settings", [FIERCE, f"{FIERCE},kernel=old"], ids=["new", "old"])
def test_descriptors_that_the_program_closes_and_uses_again(program: Path, settings: str) -> None:
    """No file of the program is read, written or closed; the engine goes on."""
    found = answer(program, "closefrom", "400", GIVEBACK="policy=off", SETTINGS=settings)
    assert (found["state"], found["reason"], found["refused"]) == (RUNS, 0, {})
    assert found["more_passes"] >= 5
