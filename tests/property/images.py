"""Arenas made by hand in this process's memory, for both layouts, with known figures.

Written from the description of malloc_state and of chunks, not from giveback's code, so that
the two check each other.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from dataclasses import dataclass, field

HEAP_MAX = 64 << 20
PAGE = mmap.PAGESIZE
PREV_INUSE, IS_MMAPPED, NON_MAIN = 1, 2, 4


@dataclass(frozen=True)
class Layout:
    bins: int
    fastbins: int
    heap_header: int

    @property
    def top(self) -> int:
        return self.bins - 16

    @property
    def next(self) -> int:
        return self.bins + 254 * 8 + 16

    @property
    def system_mem(self) -> int:
        return self.next + 24

    @property
    def size(self) -> int:
        return self.system_mem + 16


LAYOUTS = [Layout(112, 16, 32), Layout(112, 16, 48), Layout(24, 0, 48)]


@dataclass
class Expected:
    chunks: int = 0
    bytes: int = 0
    fast_chunks: int = 0
    fast_bytes: int = 0
    spans: list[tuple[int, int]] = field(default_factory=list)


def bin_of(size: int) -> int:
    """The bin for a size, by the ranges in the comment above malloc.c's bin definitions."""
    if size < 1024:
        return size // 16
    for shift, limit, base in ((6, 48, 48), (9, 20, 91), (12, 10, 110), (15, 4, 119), (18, 2, 124)):
        if size >> shift <= limit:
            return base + (size >> shift)
    return 126


class Image:
    """One thread arena of one heap."""

    def __init__(self, layout: Layout, heap_bytes: int) -> None:
        self.layout = layout
        self.heap_bytes = heap_bytes
        # Address space for a heap that is aligned as glibc aligns its own; never touched pages
        # cost nothing.
        self.memory = mmap.mmap(-1, 2 * HEAP_MAX, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._view = (ctypes.c_char * (2 * HEAP_MAX)).from_buffer(self.memory)
        base = ctypes.addressof(self._view)
        self.heap = (base + HEAP_MAX - 1) // HEAP_MAX * HEAP_MAX
        self._base = base
        self.arena = self.heap + layout.heap_header
        self.expected = Expected()
        self.chunks: list[int] = []
        self._at = (self.arena + layout.size + 15) // 16 * 16
        self._previous_free = 0
        for number in range(1, 128):
            head = self.bin_head(number)
            self.write(head + 16, head, head)
        self.write(self.heap, self.arena, 0, heap_bytes, heap_bytes)
        self.write(self.arena + layout.next, self.arena)
        self.write(self.arena + layout.system_mem, heap_bytes, heap_bytes)

    def close(self) -> None:
        del self._view
        self.memory.close()

    def write(self, address: int, *words: int) -> None:
        data = struct.pack(f"<{len(words)}Q", *(word % 2**64 for word in words))
        offset = address - self._base
        self.memory[offset : offset + len(data)] = data

    def read(self, address: int) -> int:
        offset = address - self._base
        (word,) = struct.unpack("<Q", self.memory[offset : offset + 8])
        return int(word)

    def bin_head(self, number: int) -> int:
        return self.arena + self.layout.bins + (number - 1) * 16 - 16

    def room(self) -> int:
        return self.heap + self.heap_bytes - self._at - 64

    def _append(self, size: int, free: bool) -> int:
        chunk = self._at
        previous = self._previous_free
        if previous:
            self.write(chunk, previous)
        self.write(chunk + 8, size | (0 if previous else PREV_INUSE) | (0 if free else NON_MAIN))
        self._previous_free = size if free else 0
        self._at += size
        return chunk

    def live(self, size: int) -> int:
        return self._append(size, free=False)

    def free(self, size: int, number: int, at_front: bool = True) -> int:
        """Append a free chunk behind a live one and link it into a bin."""
        chunk = self._append(size, free=True)
        head = self.bin_head(number)
        neighbour = self.read(head + (16 if at_front else 24))
        following, preceding = (neighbour, head) if at_front else (head, neighbour)
        self.write(chunk + 16, following, preceding)
        self.write(following + 24, chunk)
        self.write(preceding + 16, chunk)
        self.chunks.append(chunk)
        self.expected.chunks += 1
        self.expected.bytes += size
        start = (chunk + 48 + PAGE - 1) // PAGE * PAGE
        end = (chunk + size) // PAGE * PAGE
        if start < end:
            self.expected.spans.append((start, end))
        return chunk

    def fast(self, size: int, protected: bool) -> int:
        chunk = self._append(size, free=False)
        head = self.arena + self.layout.fastbins + (size // 16 - 2) * 8
        link = self.read(head)
        self.write(chunk + 16, link ^ ((chunk + 16) >> 12) if protected else link)
        self.write(head, chunk)
        self.expected.fast_chunks += 1
        self.expected.fast_bytes += size
        return chunk

    def finish(self) -> None:
        """Everything behind becomes top."""
        if self._previous_free:
            self.live(32)
        self.top = self._at
        self.write(self.top + 8, (self.heap + self.heap_bytes - self.top) | PREV_INUSE)
        self.write(self.arena + self.layout.top, self.top)
