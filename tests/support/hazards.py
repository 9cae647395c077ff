"""The programs tests/children/hazard_*.c with the engine preloaded, at its highest rate."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.children import waiting

from giveback import library_path

LIBRARY = library_path()
FIERCE = "age=1ms,cpu=100%,duty=100%,pause=10ms"
"""A pass is nearly always under way."""

# enum gb_engine_state, enum gb_status: what the figures are compared with.
NONE, RUNS, REFUSES = 0, 1, 2
NO_PROC, NO_MEMORY, NO_THREAD, SANDBOX, RDMA, USERFAULTFD, LOCKED = 5, 6, 10, 16, 17, 18, 19

_SECONDS = 60
"""What hangs is killed after this; everything is over in a few."""


def environment(settings: str = FIERCE, **more: str) -> dict[str, str]:
    """Ours, with the engine in it."""
    return {"LD_PRELOAD": str(LIBRARY), "GIVEBACK": settings, **more}


def run(program: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end; a test fails if it hangs. An empty variable is left out."""
    wanted = {**os.environ, **environment(), **variables}
    return subprocess.run(
        [str(program), *arguments],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
        env={name: value for name, value in wanted.items() if value},
    )


def answer(program: Path, *arguments: str, **variables: str) -> dict[str, Any]:
    """The JSON that it prints; it must end with 0 and say nothing else."""
    done = run(program, *arguments, **variables)
    assert (done.returncode, done.stderr) == (0, ""), (arguments, done)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@contextmanager
def resting(program: Path, *arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """It prints "ready" and goes on once its standard input ends."""
    with waiting([str(program), *arguments], **{**environment(), **variables}) as child:
        yield child


def pages(pid: int) -> list[Path]:
    """The names in /dev/shm that say they are of this process."""
    return sorted(Path("/dev/shm").glob(f"giveback.*.{pid}.*"))
