"""Deriving another process's glibc: the same code as for our own, over its memory."""

from __future__ import annotations

import dataclasses

from .. import _native
from ..errors import from_status
from . import process

# A running program can be in the middle of changing what is being read.
_TRIES = 16


@dataclasses.dataclass(frozen=True)
class RemoteGlibc:
    """Where the arenas of another process are and how they are laid out."""

    main_arena: int
    bins_offset: int
    heap_header: int
    arenas: tuple[int, ...]


def derive(pid: int, data: tuple[int, int]) -> RemoteGlibc:
    """Find the arenas, given the writable data of the process's libc.

    Checked by structure only: the process is neither stopped nor asked. Raises ProcessError if
    its memory may not be read, UnsupportedError if no layout fits.
    """
    status = _native.UNKNOWN_LAYOUT
    with process.memory(pid) as fd:
        for _ in range(_TRIES):
            status, raw, arenas = _native.derive_from_file(fd, *data)
            if status == _native.OK:
                return RemoteGlibc(
                    main_arena=raw["main_arena"],
                    bins_offset=raw["bins_offset"],
                    heap_header=raw["heap_header"],
                    arenas=tuple(arenas),
                )
    raise from_status(status)
