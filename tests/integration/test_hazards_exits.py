"""The end of a process, of a library, of two libraries, while the engine works."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from support.children import compile_child
from support.hazards import FIERCE, LIBRARY, RUNS, answer, pages, resting

from giveback.remote import engine


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_child(tmp_path_factory.mktemp("exits"), "hazard_exits")


@pytest.mark.parametrize(
    ("count", "milliseconds", "settings"),
    [(300, 0, FIERCE), (30, 99, "policy=trim,every=100ms")],
    ids=["background", "trim"],
)
def test_exit_in_a_handler_that_interrupted_malloc(
    program: Path, count: int, milliseconds: int, settings: str
) -> None:
    """The interrupted call may have an arena's lock, for ever: exit must wait for nobody."""
    found = answer(program, "handler", str(count), str(milliseconds), GIVEBACK=settings)
    assert found == {"good": count, "bad": 0}


def test_a_normal_exit_leaves_nothing_behind(program: Path) -> None:
    with resting(program, "rest", "7") as child:
        assert len(pages(child.pid)) == 1
        assert child.communicate("", 30) == ("", "")
        assert child.returncode == 7
    assert pages(child.pid) == []


def test_what_a_killed_process_leaves_is_removed_by_the_next(program: Path) -> None:
    with resting(program, "rest", "0") as alive:
        with resting(program, "rest", "0") as killed:
            killed.send_signal(signal.SIGKILL)
            killed.wait(30)
            (left,) = pages(killed.pid)
        foreign = Path(f"/dev/shm/giveback.1.{killed.pid}.0")  # of another pid namespace
        other = Path(f"/dev/shm/giveback.{left.name.split('.')[1]}.x")
        foreign.touch()
        other.touch()
        try:
            with resting(program, "rest", "0") as third:
                assert not left.exists()
                assert foreign.exists()
                assert other.exists()
                assert len(pages(third.pid)) == 1
                assert len(pages(alive.pid)) == 1
        finally:
            foreign.unlink()
            other.unlink()


def wait_until_settled(pid: int) -> None:
    """Then its engine sleeps until the process works, or for 15 s; else it wakes once a second."""
    end = time.monotonic() + 30
    wakeups, since = -1, time.monotonic()
    while time.monotonic() - since < 2:
        assert time.monotonic() < end, "the engine of a process at rest keeps waking up"
        time.sleep(0.05)
        now = engine.read(pid).wakeups
        if now != wakeups:
            wakeups, since = now, time.monotonic()


def test_a_process_at_rest_answers_at_once(program: Path) -> None:
    """By a signal to the engine's thread, which would otherwise sleep for up to 15 s."""
    with resting(program, "rest", "0") as child:
        wait_until_settled(child.pid)
        engine.release(child.pid, 8)  # raises if it takes longer


def test_dlclose_does_not_unload_a_running_engine(program: Path) -> None:
    found = answer(program, "dlclose", str(LIBRARY), LD_PRELOAD="", SETTINGS=FIERCE)
    assert found["state"] == RUNS
    assert found["engines"] == 1


@pytest.mark.parametrize("settings", [FIERCE, ""], ids=["settings", "none"])
def test_two_copies_have_one_engine(tmp_path: Path, program: Path, settings: str) -> None:
    copy = Path(shutil.copy2(LIBRARY, tmp_path / LIBRARY.name))
    variables = {"LD_PRELOAD": f"{LIBRARY}:{copy}", "GIVEBACK": settings}
    found = answer(program, "twice", str(copy), **variables)
    assert found["state"] == RUNS
    assert found["engines"] == 1


def test_an_engine_that_starts_and_stops_in_a_busy_program(program: Path) -> None:
    """A heap that is the same before and after mallinfo was met in between: that is no unknown one.

    An engine that was stopped leaves no file open.
    """
    settings = {"GIVEBACK": "policy=off", "SETTINGS": FIERCE}
    found = answer(program, "restart", "150", **settings)
    assert found == {"worked": 150, "refused": 0, "engines": 0, "more_files": 0}


def test_the_figures_of_a_process_are_readable_by_its_user_only(program: Path) -> None:
    old = os.umask(0)
    try:
        with resting(program, "rest", "0") as child:
            (page,) = pages(child.pid)
            assert page.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(old)
