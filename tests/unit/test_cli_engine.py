"""run, lib, stats, trim: what cannot be is one line that helps, and an exit code."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.children import compile_program
from support.users import as_ordinary_user

from giveback import library_path

COMMAND = [sys.executable, "-m", "giveback"]
GONE = "2147483647"

pytestmark = pytest.mark.skipif(not library_path().is_file(), reason="libgiveback.so is not built")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )


def assert_one_line(done: subprocess.CompletedProcess[str], says: str, code: int = 2) -> None:
    assert done.returncode == code, (done.stdout, done.stderr)
    assert done.stdout == ""
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run"], "Missing argument"),
        (["run", "--"], "Missing argument"),
        (["run", "--cpuu", "1%", "--", "true"], "No such option '--cpuu'"),
        (["run", "--cpu", "5", "--", "true"], "write the unit"),
        (["run", "--cpu", "0%", "--", "true"], "from 0.01% to 100%"),
        (["run", "--pause", "1h", "--", "true"], "pause must be a time from 10us to 10ms"),
        (["run", "--age", "1s,cpu=3%", "--", "true"], "age must be one value"),
        (["run", "--policy", "fast", "--", "true"], "background, trim or off"),
        (["run", "--kernel", "6", "--", "true"], "kernel must be new or old"),
        (["run", "--", "no-such-program"], "there is no program 'no-such-program' in PATH"),
        (["run", "--", "./no-such-program"], "No such file"),
        (["run", "--", "/etc/passwd"], "may not be executed"),
        (["run", "--", "/etc"], "is a folder"),
        (["run", "--", ""], "is empty"),
        (["lib", "x"], "unexpected extra argument"),
        (["stats"], "Missing argument 'PID'"),
        (["stats", "x"], "'x' is not a process id"),
        (["stats", GONE], f"there is no process {GONE}"),
        (["stats", GONE, "--watch", "--interval", "5"], "with its unit"),
        (["stats", GONE, "--interval", "0s"], "from 0.1s to 3600s"),
        (["stats", GONE, "--json", "--prometheus", "x"], "exclude each other"),
        (["stats", GONE, "--prometheus", "/etc"], "is a directory"),
        (["trim"], "Missing argument 'PID'"),
        (["trim", "-1"], "No such option"),
        (["trim", GONE], f"there is no process {GONE}"),
        (["trim", GONE, "--timeout", "60"], "with its unit"),
    ],
)
def test_bad_input_is_one_line_that_helps(arguments: list[str], says: str) -> None:
    assert_one_line(run(*arguments), says)


def test_a_wrong_giveback_is_told_before_the_program_starts() -> None:
    done = run("run", "--", "echo", "started", GIVEBACK="cpu=5")
    assert_one_line(done, "GIVEBACK in the environment: cpu must be")


@pytest.mark.parametrize("command", ["stats", "trim"])
def test_a_process_without_an_engine(command: str) -> None:
    assert_one_line(run(command, str(os.getpid())), "giveback run -- CMD")


@pytest.mark.parametrize("command", ["stats", "trim"])
def test_a_process_of_another_user(tmp_path: Path, command: str) -> None:
    done = subprocess.run(
        [*as_ordinary_user(tmp_path), *COMMAND, command, str(os.getpid())],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert_one_line(done, "may not be read")


# ---- programs into which nothing can be preloaded --------------------------------------------

EMPTY = "int main(void) { return 0; }"


def made(folder: Path, name: str, content: bytes) -> str:
    program = folder / name
    program.write_bytes(content)
    program.chmod(0o755)
    return str(program)


def patched(folder: Path, at: int, value: int) -> str:
    """A copy of a program of this machine with one byte of its ELF header changed."""
    content = bytearray(Path("/bin/true").read_bytes())
    content[at] = value
    return made(folder, "patched", bytes(content))


def test_a_static_program(tmp_path: Path) -> None:
    program = compile_program(tmp_path, EMPTY, "-static")
    assert_one_line(run("run", "--", str(program)), "linked statically")


def test_a_static_pie_program(tmp_path: Path) -> None:
    program = compile_program(tmp_path, EMPTY, "-static-pie")
    assert_one_line(run("run", "--", str(program)), "linked statically")


def test_a_musl_program(tmp_path: Path) -> None:
    linker = "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"
    program = compile_program(tmp_path, EMPTY, linker)
    assert_one_line(run("run", "--", str(program)), "is a program for musl")


def test_a_program_for_another_machine(tmp_path: Path) -> None:
    assert_one_line(run("run", "--", patched(tmp_path, 18, 0xF3)), "64-bit program for RISCV")


def test_a_damaged_program(tmp_path: Path) -> None:
    assert_one_line(run("run", "--", made(tmp_path, "damaged", b"\x7fELF\2\1")), "damaged ELF file")


@pytest.mark.parametrize(
    ("bit", "name"), [(stat.S_ISUID, "set-user-ID"), (stat.S_ISGID, "set-group-ID")]
)
def test_a_program_that_changes_its_user(tmp_path: Path, bit: int, name: str) -> None:
    program = tmp_path / "true"
    shutil.copy2("/bin/true", program)
    try:
        os.chown(program, 65534, 65534)
    except PermissionError:
        pytest.skip("needs root")
    program.chmod(0o755 | bit)
    assert_one_line(run("run", "--", str(program)), name)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"echo started\n", "neither an ELF program nor a script"),
        (b"#!\necho started\n", "empty #! line"),
        (b"#!/no/such/interpreter\n", "asks for an interpreter: /no/such/interpreter"),
        (b"#!/usr/bin/env no-such-interpreter\n", "no program 'no-such-interpreter'"),
        (b"#!SELF\n", "from script to script"),
        (b"#! STATIC -x\n", "linked statically"),
        (b"#!/usr/bin/env STATIC\n", "linked statically"),
    ],
)
def test_scripts_are_followed(tmp_path: Path, content: bytes, says: str) -> None:
    if b"STATIC" in content:
        program = compile_program(tmp_path, EMPTY, "-static")
        content = content.replace(b"STATIC", os.fsencode(program))
    content = content.replace(b"SELF", os.fsencode(tmp_path / "script"))
    assert_one_line(run("run", "--", made(tmp_path, "script", content)), says)


def test_scripts_that_work(tmp_path: Path) -> None:
    for number, line in enumerate((b"#!/bin/sh", b"#! /usr/bin/env -S A=b sh", b"#!/bin/sh -e")):
        script = made(tmp_path, f"script{number}", line + b"\necho started by $0\n")
        done = run("run", "--", script)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"started by {script}\n", "")


def test_help_says_the_exit_codes() -> None:
    for command in ("run", "lib", "stats", "trim"):
        assert "Exit code" in run(command, "--help").stdout
        assert command in run("--help").stdout
