"""What /proc says of a process: mappings, status fields, environment.

Every function raises ProcessError if the process is gone or may not be read.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import ProcessError

_LINE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) ([0-9a-f]+:[0-9a-f]+) (\d+) *(.*)")


@dataclasses.dataclass(frozen=True)
class Mapping:
    """A line of /proc/PID/maps."""

    start: int
    end: int
    permissions: str
    offset: int
    device: str
    inode: int
    path: str
    """Without " (deleted)"; "" for anonymous memory, "[heap]" and the like in brackets."""
    deleted: bool

    @property
    def writable(self) -> bool:
        """Whether the process may write there."""
        return "w" in self.permissions

    @property
    def is_file(self) -> bool:
        """Whether a file is behind it."""
        return self.path.startswith("/") and self.inode != 0


@contextmanager
def _explained(pid: int) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, ProcessLookupError) as error:
        if Path("/proc/self/maps").exists():
            reason, remedy = f"there is no process {pid}", "give the id of a running process"
        else:
            reason, remedy = "/proc cannot be read", "mount /proc in this container or chroot"
        raise ProcessError(reason, remedy) from error
    except PermissionError as error:
        remedy = "run as the same user or as root"
        if os.geteuid() == 0:
            remedy = "even root is refused: look for a container or a security module in between"
        elif Path("/proc/sys/kernel/yama/ptrace_scope").exists():
            remedy += "; with Yama's ptrace_scope above 0, other than children need CAP_SYS_PTRACE"
        raise ProcessError(f"process {pid} may not be read", remedy) from error


def read_maps(pid: int) -> list[Mapping]:
    """All mappings, in address order; empty for a kernel thread."""
    with _explained(pid):
        text = Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape")
    mappings = []
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        start, end, permissions, offset, device, inode, path = match.groups()
        mappings.append(
            Mapping(
                start=int(start, 16),
                end=int(end, 16),
                permissions=permissions,
                offset=int(offset, 16),
                device=device,
                inode=int(inode),
                path=path.removesuffix(" (deleted)"),
                deleted=path.endswith(" (deleted)"),
            )
        )
    return mappings


def status_fields(pid: int) -> dict[str, str]:
    """The fields of /proc/PID/status."""
    with _explained(pid):
        text = Path(f"/proc/{pid}/status").read_text(errors="surrogateescape")
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in pairs}


def environment(pid: int) -> dict[str, str]:
    """The environment with which the process was started; later changes do not show."""
    with _explained(pid):
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    pairs = (entry.partition(b"=") for entry in raw.split(b"\0") if b"=" in entry)
    return {os.fsdecode(key): os.fsdecode(value) for key, _, value in pairs}


def file_of(pid: int, path: str) -> Path:
    """How to open, from here, a file that the process sees as `path` (it may be in a container)."""
    return Path(f"/proc/{pid}/root{path}")


def descriptors(pid: int) -> list[str]:
    """What the open descriptors of the process refer to."""
    targets = []
    with _explained(pid):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):  # closed in the meantime
                targets.append(str(entry.readlink()))
    return targets


@contextmanager
def memory(pid: int) -> Iterator[int]:
    """A descriptor to read the memory of the process with, closed at the end."""
    with _explained(pid):
        fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)
