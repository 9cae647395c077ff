"""The command line as a user meets it: real processes, exit codes, what goes where."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-m", "giveback"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["doctor", "x"], "'x' is not a process id"),
        (["doctor", "0"], "'0' is not a process id"),
        (["doctor", "99999999999999"], "is not a process id"),
        (["doctor", "--", "-1"], "'-1' is not a process id"),
        (["doctor", "2147483647"], "there is no process 2147483647"),
        (["doctor", "--jsn"], "No such option '--jsn'"),
        (["doctor", "1", "2"], "unexpected extra argument"),
        (["docto"], "No such command 'docto'"),
    ],
)
def test_bad_input_is_one_line_that_helps(arguments: list[str], says: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_doctor_on_itself() -> None:
    done = run("doctor")
    assert done.returncode == 0, done.stdout
    assert "difference 0" in done.stdout
    assert "\x1b" not in done.stdout, "no colours in a pipe"
    for line in done.stdout.splitlines()[1:-1]:
        assert line.split("\t")[0] in ("ok", "note", "no")


def test_doctor_json() -> None:
    done = run("doctor", "--json")
    report = json.loads(done.stdout)
    assert report["schema"] == 1
    assert report["works"] is True
    assert report["verified"] == "mallinfo"
    assert report["bins_offset"] in (112, 24)
    assert {finding["verdict"] for finding in report["findings"]} <= {"good", "note", "bad"}


def test_doctor_of_a_child() -> None:
    code = "print('ready', flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        report = json.loads(run("doctor", "--json", str(child.pid)).stdout)
        assert report["is_self"] is False
        assert report["allocator"] == "glibc"
        assert report["verified"] == "structure"
        assert child.poll() is None
    finally:
        child.communicate("\n")
    assert child.returncode == 0


def test_colours_on_a_terminal() -> None:
    leader, follower = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"TERM": "xterm"}
    with subprocess.Popen([*COMMAND, "doctor"], stdout=follower, env=environment) as child:
        os.close(follower)
        output = b""
        while True:
            try:
                part = os.read(leader, 65536)
            except OSError:  # the terminal is gone with its last writer
                break
            if not part:
                break
            output += part
    os.close(leader)
    assert child.returncode == 0
    assert b"\x1b[" in output


def test_help_and_version() -> None:
    import giveback

    assert "doctor" in run("--help").stdout
    assert "Exit code" in run("doctor", "--help").stdout
    assert giveback.__version__ in run("--version").stdout
