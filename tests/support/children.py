"""Real child processes, started and always ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import debian
import glibcs
import pytest

SECONDS = 120
ROOT = Path(__file__).resolve().parents[2]


def get_glibc(version: str) -> glibcs.Glibc:
    """The glibc, or a skip that names it."""
    try:
        return glibcs.get(version)
    except debian.UnavailableError as error:
        pytest.skip(f"glibc {version}: {error}")


def ask_child(program: str, version: str, *arguments: str, **environment: str) -> dict[str, Any]:
    """What tests/children/PROGRAM.c answers on one glibc."""
    glibc = get_glibc(version)
    try:
        built = glibcs.child(program)
    except debian.UnavailableError as error:
        pytest.skip(f"{program}: {error}")
    done = subprocess.run(
        glibc.command(built, *arguments),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def ask_heap_child(version: str, *arguments: str, **environment: str) -> dict[str, Any]:
    """What tests/children/heap_child.c answers on one glibc."""
    return ask_child("heap_child", version, *arguments, **environment)


def run_python(code: str, *prefix: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a new interpreter, perhaps behind other commands."""
    return subprocess.run(
        [*prefix, sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={**os.environ, **environment},
    )


@contextmanager
def waiting(command: list[str], **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A child that prints a line once it is ready and runs until its standard input ends."""
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        assert child.stdout is not None
        line = child.stdout.readline()
        assert line.strip() == "ready", (line, child.stderr and child.stderr.read())
        yield child
    finally:
        child.kill()
        child.communicate()


def _compile(source: Path, program: Path, *options: str) -> Path:
    done = subprocess.run(
        ["cc", str(source), "-o", str(program), *options],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        pytest.skip(f"cc {' '.join(options)}: {last}")
    return program


def compile_program(folder: Path, source: str, *options: str) -> Path:
    """A small C program, with the compiler of this machine."""
    file = folder / "program.c"
    file.write_text(source)
    return _compile(file, folder / "program", *options)


def compile_child(folder: Path, name: str, *options: str) -> Path:
    """tests/children/NAME.c, which may include headers of csrc, for this machine."""
    options = ("-std=gnu11", "-D_GNU_SOURCE", "-O2", f"-I{ROOT / 'csrc'}", "-pthread", *options)
    return _compile(ROOT / "tests" / "children" / f"{name}.c", folder / name, *options)


WAITING_PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
int main(void) {
  void *volatile block = malloc(100);
  free(block);
  puts("ready");
  fflush(stdout);
  getchar();
  return 0;
}
"""
