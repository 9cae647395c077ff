"""The engine of this process: started, stopped, asked.

A native thread that gives back whole free pages of glibc's malloc while the program goes on. One
process has one engine: under `giveback run` the functions here use the one that was preloaded.

Everything here is thread-safe, and nothing holds the GIL while it waits. After os.fork() the child
gets an engine of its own, with the same settings, if start() had started one and nobody stopped
it; a program that is started by exec gets none (that is what `giveback run` is for).
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import numbers
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from . import _native
from .engine_stats import Stats, from_raw
from .errors import (
    ConfigError,
    EngineError,
    ProcessError,
    ReleaseTimeoutError,
    from_status,
)
from .remote import process

_SLICE_NS = 50_000_000
"""A wait in C for a release: longer ones are made of naps in Python, which Ctrl-C ends."""
_NAP = 0.01

_lock = threading.RLock()
"""Guards _settings, and an engine that lives for one release() only."""
_settings: str | None = None
"""Of the engine that start() started in this process; None without one, or if it was stopped."""
_why_none: int | None = None
"""The status that kept start(), or the start in a fork child, from having an engine."""


@dataclasses.dataclass(frozen=True)
class Released:
    """What one release() brought back."""

    bytes: int
    """Resident memory that went back to the system."""
    seconds: float
    """Wall time from when the engine saw the request until it was done."""


def library_path() -> Path:
    """The library with the engine, for LD_PRELOAD: beside giveback's extension module."""
    return Path(_native.__file__).parent / "libgiveback.so"


def _open() -> bool:
    """Find or load the engine; True if it was preloaded."""
    status, message, preloaded = _native.engine_open(str(library_path()))
    if status == _native.NO_ENGINE:
        raise EngineError(f"the engine's library cannot be loaded: {message}", "reinstall giveback")
    if status != _native.OK:
        raise from_status(status)
    return preloaded


def _inherited(preloaded: bool) -> str:
    """What GIVEBACK says, as far as it is for this process.

    As at its start: children=no takes it out of the environment. A wrong one was complained of
    before Python began, and must not stop a program.
    """
    text = ""
    if preloaded:
        with contextlib.suppress(ProcessError):
            text = process.environment(os.getpid()).get("GIVEBACK", "")
    return text if _native.parse_config(text)[0] == _native.OK else ""


def _one(key: str, value: object, factor: float, unit: str) -> str:
    # numpy's numbers are Real, too.
    if isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value):
        value = float(value)
        return f"{key}={value * factor:.6f}".rstrip("0").rstrip(".") + unit
    # A comma would begin another setting; what is not printable ASCII is in none.
    good = isinstance(value, str) and value.isascii() and value.isprintable()
    if not good or not value or "," in str(value):
        raise ConfigError(f"{key} must be one value, not {value!r}")
    return f"{key}={value}"


def _text(
    shares: dict[str, str | float | None],
    times: dict[str, str | float | None],
    words: dict[str, str | None],
) -> str:
    """The settings that were given, as in GIVEBACK; raises ConfigError."""
    settings = [_one(key, value, 100, "%") for key, value in shares.items() if value is not None]
    settings += [_one(key, value, 1e6, "us") for key, value in times.items() if value is not None]
    settings += [_one(key, value, 1, "") for key, value in words.items() if value is not None]
    text = ",".join(settings)
    status, message = _native.parse_config(text)
    if status != _native.OK:
        raise ConfigError(message)
    return text


def _start(text: str) -> int:
    """Start with these settings over those of GIVEBACK; the status."""
    global _settings, _why_none
    combined = ",".join(filter(None, (_inherited(_open()), text)))
    status, message = _native.engine_start(combined)
    if status == _native.BAD_CONFIG:
        raise ConfigError(message)
    if status == _native.OK:
        _settings = combined
    _why_none = status if status not in (_native.OK, _native.RUNNING) else None
    return status


def start(
    *,
    cpu: str | float | None = None,
    pause: str | float | None = None,
    duty: str | float | None = None,
    age: str | float | None = None,
    policy: str | None = None,
    every: str | float | None = None,
    kernel: str | None = None,
    fastbins: str | None = None,
) -> bool:
    """Start this process's engine. True if this call did; False if one runs already.

    Settings are texts with a unit as in GIVEBACK ("1%", "100us", "250ms", "2s"), or numbers: shares
    as a fraction (0.01 is 1 %), times in seconds.

    - `cpu` ("1%"): share of one core, averaged over a minute, that searching and refaults may cost.
    - `pause` ("100us"): longest time that a hold of an arena's lock lets another thread wait.
    - `duty` ("10%"): share of time in which a lock that others want may be the engine's.
    - `age` ("250ms"): how long memory must have stayed free.
    - `policy` ("background"): or "trim" (malloc_trim(0) each `every`, "30s"), or "off" (nothing is
      started, and False returned).
    - `kernel` ("new"): "old" uses only what kernels before Linux 6 have.
    - `fastbins` ("empty"): "keep" leaves glibc's fastbins alone; small blocks then stay.

    Where an engine runs already, also a preloaded one, start() without settings changes nothing;
    with settings it raises EngineError. One that was preloaded but has not begun yet begins now,
    and GIVEBACK's settings hold for what is not given here.

    Raises ConfigError for a setting that cannot be, UnsupportedError where the allocator is not
    glibc's or the system does not allow it, EngineError if no thread could be started.
    """
    text = _text(
        {"cpu": cpu, "duty": duty},
        {"pause": pause, "age": age, "every": every},
        {"policy": policy, "kernel": kernel, "fastbins": fastbins},
    )
    with _lock:
        status = _start(text)
    if status == _native.OK:
        return True
    if status == _native.OFF or (status == _native.RUNNING and not text):
        return False
    raise from_status(status)


def stop() -> None:
    """End this process's engine, whoever started it, and wait until its thread is gone.

    That takes at most one hold and one system call. Nothing happens if there is none. Raises
    EngineError if the library is missing.
    """
    global _settings, _why_none
    with _lock:
        _open()
        _native.engine_stop()
        _settings = _why_none = None


def _request(end: float) -> tuple[int, Released]:
    """Request a release of the engine that runs, and wait for the answer until `end`.

    That is on the monotonic clock. The status is NO_ENGINE if there is none, or none any more.
    """
    left_ns = max(0.0, end - time.monotonic()) * 1e9
    status, size, ns = _native.engine_release(int(min(_SLICE_NS, left_ns)))
    if status == _native.TIMEOUT:
        # Whatever request is the last by now, its answer also answers ours.
        wanted = _native.engine_stats()[1]["wanted"]
        while True:
            status, raw = _native.engine_stats()
            if status != _native.OK:
                break
            if (raw["answered"] - wanted) % 2**32 < 2**31:
                status, size, ns = raw["reason"], raw["answer_bytes"], raw["answer_ns"]
                break
            if time.monotonic() >= end:
                status = _native.TIMEOUT
                break
            time.sleep(_NAP)
    return status, Released(bytes=size, seconds=ns / 1e9)


def _request_of_own(end: float) -> tuple[int, Released]:
    """The same of an engine that lives for this request only.

    The caller holds _lock, so that nobody finds, and shares, an engine that ends soon.
    """
    global _settings
    kept = _settings
    started = _start("")
    _settings = kept
    if started not in (_native.OK, _native.RUNNING):
        return started, Released(0, 0)
    if started == _native.RUNNING:
        return _request(end)
    try:
        status, released = _request(end)
    finally:
        _native.engine_stop()
    if status == _native.TIMEOUT:
        raise ReleaseTimeoutError(
            "the time allowed was over before the release was; no engine is left to go on with it",
            "allow more time, or start() an engine first",
        )
    return status, released


def release(timeout: float | None = None) -> Released:
    """Release what is held now, whatever its age, within the pause budget, and wait for it.

    `timeout` is in seconds; None waits until it is done. Works also where no engine runs: then one
    is started for this call, and stopped again. Ctrl-C ends the wait; an engine that runs goes on.

    Raises ReleaseTimeoutError if it takes longer (where an engine runs, it goes on),
    UnsupportedError where the engine may not touch this process, EngineError if GIVEBACK says
    policy=off.
    """
    if timeout is not None and not timeout >= 0:
        raise ValueError(f"timeout is in seconds, 0 or more, not {timeout!r}")
    end = math.inf if timeout is None else time.monotonic() + timeout
    _open()
    status, released = _request(end)
    if status == _native.NO_ENGINE:
        patience = -1 if math.isinf(end) else max(0.0, end - time.monotonic())
        if _lock.acquire(timeout=min(patience, threading.TIMEOUT_MAX)):
            try:
                status, released = _request_of_own(end)
            finally:
                _lock.release()
        else:
            status = _native.TIMEOUT
    if status != _native.OK:
        raise from_status(status)
    return released


def stats() -> Stats:
    """What this process's engine did until now; costs microseconds. Without one, `state` is "none".

    Raises EngineError if the engine in this process is of another version of giveback.
    """
    _open()
    _, raw = _native.engine_stats()
    return from_raw(raw, _why_none)


@contextlib.contextmanager
def running(
    *,
    cpu: str | float | None = None,
    pause: str | float | None = None,
    duty: str | float | None = None,
    age: str | float | None = None,
    policy: str | None = None,
    every: str | float | None = None,
    kernel: str | None = None,
    fastbins: str | None = None,
) -> Iterator[None]:
    """An engine for a block of code: as start(), and stop() at its end if this started it."""
    started = start(
        cpu=cpu,
        pause=pause,
        duty=duty,
        age=age,
        policy=policy,
        every=every,
        kernel=kernel,
        fastbins=fastbins,
    )
    try:
        yield
    finally:
        if started:
            stop()


def _after_fork_in_child() -> None:
    """The engine's thread is not in the child; nobody else can hold the lock there."""
    global _lock, _settings, _why_none
    _lock = threading.RLock()
    if _settings is None:
        return
    status, _ = _native.engine_start(_settings)
    if status not in (_native.OK, _native.RUNNING):
        _settings, _why_none = None, status  # stats() says so


os.register_at_fork(after_in_child=_after_fork_in_child)
