"""giveback.glibc_heap() in real Python processes."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.children import run_python

import giveback
from giveback import _native, _testing


def test_figures_fit_together() -> None:
    heap = giveback.glibc_heap()
    assert heap.arenas[0].is_main
    assert not any(arena.is_main for arena in heap.arenas[1:])
    for arena in heap.arenas:
        assert arena.problem is None
        assert arena.free <= arena.system
        assert arena.held + arena.returned + arena.slack == arena.free
        assert arena.slack >= 0
        assert arena.bins_pages.whole <= arena.bins
        assert arena.top_pages.whole <= arena.top
    assert heap.live + heap.free == heap.system
    assert heap.verified in ("equal", "busy", "too large")
    assert heap.longest_hold_ns > 0
    assert heap.tcache is None or heap.tcache.bytes >= 32 * heap.tcache.chunks


def test_a_spike_shows_as_held_and_then_as_returned() -> None:
    code = """
import ctypes, giveback
def figures():
    heap = giveback.glibc_heap()
    assert heap.settled and heap.verified == "equal", heap
    return heap
blocks = [bytes(20_000) for _ in range(4000)]
keep = blocks[::40]
before = figures()
del blocks
freed = figures()
ctypes.CDLL(None).malloc_trim(0)
trimmed = figures()
spike = 3900 * 20_000
assert freed.live < before.live - spike * 0.99, (before, freed)
assert freed.held > before.held + spike * 0.75, (before, freed)
assert trimmed.held < 1_000_000, trimmed
assert trimmed.returned > freed.returned + spike * 0.7, (freed, trimmed)
print("done")
"""
    done = run_python(code)
    assert done.stdout == "done\n", done.stderr


def test_swapped_pages_are_held_too() -> None:
    """Needs swap; the machine's own is not touched otherwise."""
    if len(Path("/proc/swaps").read_text().splitlines()) < 2:
        pytest.skip("no swap on this machine")
    code = """
import ctypes, mmap, giveback
blocks = [bytes(20_000) for _ in range(4000)]
keep = blocks[::40]
del blocks
libc = ctypes.CDLL(None, use_errno=True)
for line in open("/proc/self/maps"):
    if line.rstrip().endswith("[heap]"):
        start, end = (int(x, 16) for x in line.split()[0].split("-"))
        assert libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), 21) == 0
heap = giveback.glibc_heap()
swapped = sum(a.pages.swapped for a in heap.arenas)
assert swapped > 20_000_000 and heap.held >= swapped, heap
print("done")
"""
    done = run_python(code)
    assert done.stdout == "done\n", done.stderr


def test_a_busy_arena_is_reported_and_the_others_are_not_harmed() -> None:
    """The lock is taken through a door for tests by a thread that then does not allocate."""
    code = """
import threading, giveback
from giveback import _native, _testing
blocks = []
started, go = threading.Barrier(3), threading.Event()
def work():
    blocks.append([bytes(3000) for _ in range(100)])
    started.wait()
    go.wait()
threads = [threading.Thread(target=work) for _ in range(2)]
[t.start() for t in threads]
started.wait()
giveback.glibc_heap()
status, raw = _native.account()
victim = raw["arenas"][-1]["address"]
assert _testing.try_lock(victim)
status, raw = _native.account(patience_ns=2_000_000)
_testing.unlock(victim)
assert status == _native.OK
by_address = {arena["address"]: arena["status"] for arena in raw["arenas"]}
assert by_address.pop(victim) == _native.BUSY
assert set(by_address.values()) == {_native.OK}
go.set()
[t.join() for t in threads]
assert giveback.glibc_heap().arenas[-1].problem is None
print("done")
"""
    done = run_python(code)
    assert done.stdout == "done\n", done.stderr


def test_looking_while_threads_allocate_and_fork() -> None:
    """Looks at the highest rate beside churn of all kinds; every live byte is checked."""
    code = """
import os, random, threading, time, giveback
stop = threading.Event()
failures = []
def churn(seed):
    rng = random.Random(seed)
    live = {}
    while not stop.is_set():
        for _ in range(200):
            key = rng.randrange(500)
            old = live.pop(key, None)
            if old is not None and old[0].strip(bytes([old[1]])):
                failures.append(key)
            byte = rng.randrange(1, 255)
            live[key] = bytes([byte]) * rng.choice((40, 600, 5000, 60000, 300000)), byte
def fork():
    while not stop.is_set():
        pid = os.fork()
        if pid == 0:
            heap = giveback.glibc_heap()
            os._exit(0 if all(a.problem is None for a in heap.arenas) else 1)
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
            failures.append("fork")
threads = [threading.Thread(target=churn, args=(i,)) for i in range(4)]
threads.append(threading.Thread(target=fork))
[t.start() for t in threads]
looks, end = 0, time.monotonic() + 6
try:
    while time.monotonic() < end:
        heap = giveback.glibc_heap(hold=20e-6)
        for arena in heap.arenas:
            assert arena.problem is None or "busy" in arena.problem, arena
            assert arena.free <= arena.system or not arena.settled, arena
        looks += 1
finally:
    stop.set()
    [t.join() for t in threads]
assert not failures, failures
assert looks > 20
print("done")
"""
    done = run_python(code, PYTHONWARNINGS="ignore", PYTHONMALLOC="malloc")
    assert done.stdout == "done\n", done.stderr


def test_signals_at_full_rate() -> None:
    code = """
import signal, giveback, time
hits = 0
def handler(*_):
    global hits
    hits += 1
    bytes(5000)
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
end = time.monotonic() + 2
while time.monotonic() < end:
    giveback.glibc_heap(hold=50e-6)
signal.setitimer(signal.ITIMER_REAL, 0)
assert hits > 100
print("done")
"""
    done = run_python(code)
    assert done.stdout == "done\n", done.stderr


def test_it_does_not_change_what_it_measures() -> None:
    """Thousands of looks leave the heap, the descriptors and the mappings as they were."""
    giveback.glibc_heap()

    def traces() -> tuple[int, int, int]:
        status, raw = _native.account()
        assert status == _native.OK
        return (
            sum(arena["system_bytes"] for arena in raw["arenas"]),
            len(list(Path("/proc/self/fd").iterdir())),
            sum(end - start for start, end, *_ in _testing.maps()) >> 20,
        )

    before = traces()
    for _ in range(2000):
        _native.account()
    assert traces() == before


def test_the_mask_of_signals_and_the_lock_come_back() -> None:
    import signal

    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    giveback.glibc_heap()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    status, raw = _native.account()
    assert status == _native.OK
    arena = raw["arenas"][-1]["address"]
    assert _testing.try_lock(arena)
    _testing.unlock(arena)


def test_from_several_threads_at_once() -> None:
    failures: list[object] = []

    def look() -> None:
        for _ in range(50):
            try:
                heap = giveback.glibc_heap()
            except giveback.GivebackError as error:
                failures.append(error)
                continue
            failures.extend(a.problem for a in heap.arenas if a.problem and "busy" not in a.problem)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.parametrize("hold", [0, -1, 2, float("nan"), float("inf")])
def test_impossible_holds(hold: float) -> None:
    with pytest.raises(ValueError, match="seconds"):
        giveback.glibc_heap(hold=hold)


def test_as_json() -> None:
    data = json.loads(json.dumps(giveback.glibc_heap().to_dict()))
    assert data["free"] == data["held"] + data["returned"] + data["slack"]
    assert data["arenas"][0]["slack"] >= 0


def test_importing_it_is_light() -> None:
    """`import giveback` in a service loads none of what only the command line needs."""
    code = """
import sys, giveback
print([name for name in ("rich", "click", "psutil", "elftools") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_version_is_the_package_s() -> None:
    from importlib.metadata import version

    assert version("giveback") == giveback.__version__
