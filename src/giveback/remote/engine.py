"""The engine of another process: its figures, and asking it for a release.

The engine counts in a page of shared memory, a small file in /dev/shm whose name shows in
/proc/PID/maps. That serves an ordinary user for processes of their own, also under Yama: the
process's memory is never touched. The file is opened only if it is the very one that is mapped.

Every function raises ProcessError if the process is gone or may not be read, NoEngineError if no
engine publishes figures there.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .. import _native
from ..engine import Released
from ..engine_stats import Stats, from_raw
from ..errors import EngineError, ProcessError, from_status
from . import process
from .objects import is_ours

_NAME = re.compile(r".*/dev/shm/giveback\.\d+\.\d+\.[0-9a-f]+")
_BLOCKED = (1 << 64) - 1 & ~sum(1 << (number - 1) for number in (9, 19, 32, 33))
"""What the engine's thread blocks: all but SIGKILL, SIGSTOP, and glibc's own two."""
_THREAD = "giveback"
_SLICE_NS = 100_000_000
"""Between two looks whether the process is still there, and whether Ctrl-C was pressed."""


class NoEngineError(EngineError):
    """No engine publishes figures in that process."""


def _threads(pid: int) -> Iterator[tuple[int, dict[str, str]]]:
    """All threads, by the id that we see, with the fields of their status."""
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):  # a thread that ended meanwhile
                lines = (entry / "status").read_text(errors="surrogateescape").splitlines()
                pairs = (line.partition(":") for line in lines)
                yield int(entry.name), {name: value.strip() for name, _, value in pairs}


def _why_none(pid: int, mappings: list[process.Mapping]) -> EngineError | ProcessError:
    if not mappings or process.status_fields(pid).get("State", "").startswith("Z"):
        return ProcessError(
            f"process {pid} has ended, or is a part of the kernel",
            "give the id of a running process",
        )
    if any(_NAME.fullmatch(m.path) for m in mappings) or any(
        fields.get("Name") == _THREAD and tid != pid for tid, fields in _threads(pid)
    ):
        return NoEngineError(
            f"the engine of process {pid} has no page in /dev/shm: its figures cannot be read",
            "see that /dev/shm exists there and is not full, and that nobody cleans it up",
        )
    if not any(is_ours(m.path) for m in mappings):
        remedy = "start it with `giveback run -- CMD`, or giveback.start() in Python"
        return NoEngineError(f"no engine runs in process {pid}", remedy)
    text = process.environment(pid).get("GIVEBACK", "")
    status, message = _native.parse_config(text)
    if status != _native.OK:
        return NoEngineError(f"no engine runs in process {pid}: its GIVEBACK is wrong: {message}")
    if "policy=off" in text.split(","):
        return NoEngineError(f"no engine runs in process {pid}: its GIVEBACK says policy=off")
    return NoEngineError(
        f"giveback is loaded in process {pid}, but its engine has not started, or was stopped",
        "preloaded, it starts once the program is a second old or has allocated 32 MB, and "
        "allocates again; else call giveback.start() there",
    )


def _find(pid: int) -> process.Mapping:
    mappings = process.read_maps(pid)
    for mapping in mappings:
        if _NAME.fullmatch(mapping.path) and not mapping.deleted:
            return mapping
    raise _why_none(pid, mappings)


@contextmanager
def _opened(pid: int, mapping: process.Mapping, flags: int) -> Iterator[int]:
    """A descriptor of the page, closed at the end."""
    fd = -1
    # As the process names it in its own file system, else (chroot) as we see it.
    for path in (process.file_of(pid, mapping.path), Path(mapping.path)):
        try:
            fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            break
        except PermissionError as error:
            raise ProcessError(
                f"the figures of process {pid} may not be opened", "run as the same user or as root"
            ) from error
        except OSError:
            continue
    if fd < 0:
        raise _why_none(pid, process.read_maps(pid))
    try:
        found = os.fstat(fd)
        device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}"
        same = (found.st_ino, device) == (mapping.inode, mapping.device)
        if not same or not stat.S_ISREG(found.st_mode):
            raise NoEngineError(
                f"{mapping.path} is not the file that process {pid} has mapped",
                "run giveback in the same container as the process",
            )
        yield fd
    finally:
        os.close(fd)


def read(pid: int) -> Stats:
    """The figures of that engine; EngineError if it is of another version of giveback."""
    mapping = _find(pid)
    with _opened(pid, mapping, os.O_RDONLY) as fd:
        status, raw = _native.stats_from_file(fd)
    if status != _native.OK:
        raise from_status(status)
    return from_raw(raw)


def _wake(pid: int, fd: int) -> None:
    """Signal the engine's thread if it waits for that; else the futex has woken it.

    Any other thread would be killed by the signal, with the process. So it must be the one with
    that id, as the process sees it (we may see another, if it is in a container), with the engine's
    name, and block the signal. If that is not so, nothing is sent: the engine then notices the
    request when it wakes by itself.
    """
    status, raw = _native.stats_from_file(fd)
    number = raw["wake_signal"]
    if status != _native.OK or not 0 < number <= 64:
        return
    for seen, fields in _threads(pid):
        own = fields.get("NSpid", str(seen)).split()[-1]
        # The kernel unblocks the number while the thread waits for it; all others are blocked.
        blocked = int(fields.get("SigBlk", "0"), 16) | 1 << (number - 1)
        if own == str(raw["thread"]) and fields.get("Name") == _THREAD and ~blocked & _BLOCKED == 0:
            _native.signal_thread(pid, seen, number)
            return


def release(pid: int, timeout: float) -> Released:
    """Have that process release everything held now, within its own pause budget, and wait.

    `timeout` is in seconds. Raises ReleaseTimeoutError if it takes longer (it goes on),
    UnsupportedError where its engine may not touch it, EngineError if the engine ends meanwhile.
    """
    end = time.monotonic() + timeout
    mapping = _find(pid)
    with _opened(pid, mapping, os.O_RDWR) as fd:
        status, request = _native.request_release(fd)
        if status != _native.OK:
            raise from_status(status)
        _wake(pid, fd)
        while True:
            left_ns = int((end - time.monotonic()) * 1e9)
            slice_ns = max(0, min(_SLICE_NS, left_ns))
            status, size, ns = _native.await_release(fd, request, slice_ns)
            if status == _native.OK:
                return Released(bytes=size, seconds=ns / 1e9)
            if status != _native.TIMEOUT or left_ns <= 0:
                raise from_status(status)
            if _find(pid) != mapping:  # it executed another program, or started another engine
                raise EngineError(f"the engine of process {pid} was stopped meanwhile")
