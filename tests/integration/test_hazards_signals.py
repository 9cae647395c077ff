"""Signals at full rate, the engine's own one, and credentials, which glibc changes by signals."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.children import compile_child
from support.hazards import RUNS, answer


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_child(tmp_path_factory.mktemp("signals"), "hazard_signals")


def test_setuid_and_setgid_in_a_loop(program: Path) -> None:
    """With glibc's internal signal blocked in one thread, the first call never returns."""
    found = answer(program, "setuid", "500")
    assert found["calls"] >= 500
    assert found["state"] == RUNS
    assert found["returned"] > 0


def test_handlers_never_run_on_the_engines_thread(program: Path) -> None:
    """Ten thousand signals a second, which for a part of the time no other thread takes."""
    found = answer(program, "rate", "2")
    assert found["handled"] > 100
    assert (found["on_engine"], found["off_main"]) == (0, 0)
    assert found["state"] == RUNS
    assert found["returned"] > 20 << 20


@pytest.mark.parametrize("by", ["queue", "timer"])
def test_a_program_gets_every_signal_of_the_number_that_the_engine_chose(
    program: Path, by: str
) -> None:
    """A thread that waits for a signal takes also those that are sent to the process."""
    found = answer(program, "own-signal", "200", by)
    assert (found["sent"], found["received"]) == (200, 200)
    assert found["state"] == RUNS


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_daemon_that_drops_its_privileges(program: Path) -> None:
    """Parts of its /proc are root's from then on."""
    found = answer(program, "drop")
    assert (found["state"], found["reason"]) == (RUNS, 0)
    assert found["returned"] > 0
