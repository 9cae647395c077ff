"""The engine in real programs on each glibc: what it brings back, and that it harms nothing."""

from __future__ import annotations

import json
import os
import subprocess

import debian
import glibcs
import pytest
from support.children import ROOT, ask_child, get_glibc

PRELOADED = ROOT / "tests" / "children" / "preloaded.c"

# As often and as hard as it can: nothing here is about being unnoticed.
FIERCE = "age=1ms,cpu=100%,duty=100%,pause=200us"
PAGE = 4096


@pytest.mark.parametrize("kernel", ["new", "old"])
@pytest.mark.parametrize("version", glibcs.SUITES)
def test_every_live_byte_survives(version: str, kernel: str) -> None:
    """Threads that come and go, forks, every way to allocate, heaps unmapped between two holds.

    The child ends with an error at the first byte that is not what it was.
    """
    answer = ask_child("engine_child", version, "stress", "2", "6", f"{FIERCE},kernel={kernel}")
    assert (answer["state"], answer["reason"]) == (1, 0)
    assert answer["doubts"] == []
    assert answer["failures"] == 0
    assert answer["generations"] >= 1
    assert answer["forks"] >= 3
    assert answer["passes"] > 20
    assert answer["returned"] > 50 << 20, "it was not at work"
    if kernel == "old":
        assert answer["path"] == 1


@pytest.mark.parametrize("shape", ["main", "thread", "small", "top"])
@pytest.mark.parametrize("version", glibcs.SUITES)
def test_everything_held_comes_back(version: str, shape: str) -> None:
    """After release(), malloc_trim finds nothing more; the answer is what RSS fell by."""
    answer = ask_child("engine_child", version, "shape", shape, "")
    assert answer["status"] == 0
    assert answer["bytes"] == answer["returned"] == answer["advised"]
    assert answer["bytes"] > 15 << 20
    # Our tables, and pages of code that are touched for the first time, come in meanwhile.
    assert answer["before"] - answer["after"] > answer["bytes"] - (1 << 20)
    assert answer["after"] - answer["trimmed"] <= 64 << 10
    assert answer["calls"] <= 2 * (answer["bytes"] >> 20) + 100
    if shape == "top":
        assert answer["returned_top"] > 25 << 20
    if shape == "small":
        # Up to 2.42 all of it lies in the main arena's fastbins, which one mallopt merges.
        assert answer["trims"] == 0


@pytest.mark.parametrize("version", glibcs.SUITES)
def test_a_library_built_on_the_oldest_serves_all(version: str) -> None:
    """Preloaded into a program that knows nothing of it, and waits for its memory to come back."""
    glibc = get_glibc(version)
    try:
        library = glibcs.preload_library()
        program = glibcs.build_for_all([PRELOADED], PRELOADED.parent, PRELOADED.stem)
    except debian.UnavailableError as error:
        pytest.skip(f"the oldest glibc: {error}")
    settings = {"LD_PRELOAD": str(library), "GIVEBACK": FIERCE}
    done = subprocess.run(
        glibc.command(program),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **settings},
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    answer = json.loads(done.stdout)
    assert answer["glibc"] == version
    assert answer["engine"] == 1
    assert answer["wrong"] == 0
