"""The demo program: what it prints, and that it always ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.children import SECONDS

from .test_surroundings import foreign_library

DEMO = [sys.executable, str(Path(__file__).parents[2] / "examples/spike.py"), "--megabytes", "100"]


def test_it_shows_the_spike_and_what_is_held_after_it() -> None:
    done = subprocess.run(
        [*DEMO, "--seconds", "2"], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "\nafter the spike: RSS" in done.stdout
    assert "glibc holds" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("lines", [0, 3])
def test_ctrl_c_or_a_closed_pipe_ends_it(lines: int) -> None:
    with subprocess.Popen(
        [*DEMO, "--seconds", "60"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        for _ in range(lines):
            child.stdout.readline()
        if lines:
            child.send_signal(signal.SIGINT)
            assert child.wait(SECONDS) == 130
        else:
            # Nobody reads what it prints.
            child.stdout.close()
            assert child.wait(SECONDS) == 141


def test_another_allocator_is_one_line() -> None:
    import os

    done = subprocess.run(
        DEMO,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={**os.environ, "LD_PRELOAD": str(foreign_library("jemalloc"))},
    )
    assert done.returncode == 1
    assert "malloc comes from" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_bad_arguments() -> None:
    for arguments in (["--seconds", "nan"], ["--threads", "0"], ["--megabytes", "x"]):
        done = subprocess.run(
            [*DEMO, *arguments], capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
