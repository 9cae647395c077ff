"""The demo program: what it prints, and that it always ends."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from support.children import SECONDS

from giveback import library_path

from .test_surroundings import foreign_library

EXAMPLES = Path(__file__).parents[2] / "examples"
DEMO = [sys.executable, str(EXAMPLES / "spike.py"), "--megabytes", "100"]


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


def test_it_can_print_only_at_the_end() -> None:
    done = subprocess.run(
        [*DEMO, "--seconds", "1", "--json"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    found = json.loads(done.stdout)
    assert set(found) == {"peak", "rss", "live", "held"}
    assert found["live"] < found["peak"]


# ---- the two side by side --------------------------------------------------------------------

both = pytest.mark.skipif(not library_path().is_file(), reason="libgiveback.so is not built")
SIDE_BY_SIDE = [sys.executable, str(EXAMPLES / "demo.py"), "--megabytes", "100"]


@both
def test_side_by_side_draws_both_and_says_the_result() -> None:
    done = subprocess.run(
        [*SIDE_BY_SIDE, "--seconds", "4"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("1 s: RSS plain")
    assert "\x1b" not in done.stdout, "no colours in a pipe"
    assert any("|" in line and "p" in line for line in lines)
    assert any("|" in line and "g" in line for line in lines)
    last = re.fullmatch(
        r"plain still holds (\d+) MB of free memory \(RSS (\d+) MB\); under giveback (\d+) MB "
        r"came back, (\d+) MB are held \(RSS \d+ MB\), for \d+ ms of CPU, [\d.]+% of the program's",
        lines[-1],
    )
    assert last, lines[-1]
    held, resident, came_back, left = map(int, last.groups())
    assert resident >= held > 50
    assert came_back > 50
    assert left < held / 2


@both
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_side_by_side_ends_its_children(number: int) -> None:
    command = [*SIDE_BY_SIDE, "--seconds", "600"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stdout is not None
        demo.stdout.readline()
        children = psutil.Process(demo.pid).children(recursive=True)
        assert len(children) == 2
        demo.send_signal(number)
        assert demo.wait(SECONDS) == 128 + number
        assert not psutil.wait_procs(children, timeout=SECONDS)[1]
