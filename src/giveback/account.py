"""The account: how many bytes of this process are in which stage, and where.

Covers what glibc's malloc holds. Does not cover blocks that malloc mapped one by one (they go back
when freed), other allocators, nor CPython's own small-object heap. Nothing here releases
anything. All sizes are bytes; all functions are thread-safe.

The stages of memory that a program let go of, and their words, are those of the whole project:
`held` (free inside the allocator, whole pages, in memory or in swap), `returned` (whole free pages
that are neither), and beside them `slack` (free bytes that share a page with something else).
"""

from __future__ import annotations

import dataclasses
from typing import Any

from . import _native
from .errors import UnsupportedError, from_status


@dataclasses.dataclass(frozen=True)
class Pages:
    """Whole pages inside free chunks."""

    whole: int
    """All of them."""
    resident: int
    """Of these, in memory and counted in RSS."""
    swapped: int
    """Of these, in swap."""

    @property
    def held(self) -> int:
        """Free, but still occupied: resident or in swap."""
        return self.resident + self.swapped

    @property
    def returned(self) -> int:
        """Neither in memory nor in swap."""
        return self.whole - self.held

    def __add__(self, other: Pages) -> Pages:
        return Pages(
            self.whole + other.whole,
            self.resident + other.resident,
            self.swapped + other.swapped,
        )


@dataclasses.dataclass(frozen=True)
class Arena:
    """What one arena of glibc's malloc holds, taken under that arena's own lock."""

    address: int
    is_main: bool
    system: int
    """Obtained from the kernel, free or not."""
    bins: int
    """Free bytes in the bins, of `bins_chunks` free chunks."""
    bins_chunks: int
    fastbins: int
    """Free bytes in fastbins (none from glibc 2.43 on). They count as in use for their neighbours:
    no page of theirs can be returned until they are consolidated."""
    fastbins_chunks: int
    top: int
    """Free bytes at the arena's end."""
    bins_pages: Pages
    top_pages: Pages
    attached_threads: int
    settled: bool
    """False if the arena was seen to change between two holds of its lock: the figures are of
    several moments."""
    complete: bool
    """False if part of a list changed too fast to be read: the figures are lower bounds."""
    holds: int
    """How often its lock was taken for this."""
    longest_hold_ns: int
    """Wall time of the longest of them."""
    problem: str | None
    """None, or why the figures of this arena are not known (they are then 0)."""

    @property
    def free(self) -> int:
        """Free bytes of all kinds, whole pages or not."""
        return self.bins + self.fastbins + self.top

    @property
    def live(self) -> int:
        """In use, as far as the arena can tell: includes every thread's tcache."""
        return self.system - self.free

    @property
    def pages(self) -> Pages:
        """Whole free pages of all kinds."""
        return self.bins_pages + self.top_pages

    @property
    def held(self) -> int:
        """Whole free pages that still occupy memory or swap."""
        return self.pages.held

    @property
    def returned(self) -> int:
        """Whole free pages that occupy nothing."""
        return self.pages.returned

    @property
    def slack(self) -> int:
        """Free bytes that share a page with live data or with malloc's own.

        Where the arena is not `settled`, pages and bytes are of different moments, and this
        difference of them may be off, even below 0.
        """
        return self.free - self.pages.whole


@dataclasses.dataclass(frozen=True)
class Tcache:
    """Blocks that the calling thread freed and keeps; arenas count them as in use."""

    bytes: int
    chunks: int


@dataclasses.dataclass(frozen=True)
class GlibcHeap:
    """What glibc's malloc holds in this process; sums leave out arenas with a problem."""

    arenas: tuple[Arena, ...]
    """The main arena first."""
    libc: str
    """Path of the libc."""
    bins_offset: int
    """Which layout was found: where the bins start in malloc_state."""
    heap_header: int
    """sizeof(heap_info), 0 while there is only the main arena."""
    mmapped: int | None
    """Bytes of live blocks that malloc mapped one by one; None if not known."""
    tcache: Tcache | None
    """Of the calling thread; None if not found. Other threads' are not visible."""
    residency: str
    """Where the kernel was asked: PAGEMAP_SCAN, pagemap, or mincore (which does not see swap)."""
    verified: str
    """How the figures were checked against mallinfo: 'equal' (difference 0), 'busy' (the heap
    never stood still), 'too large' (asking would have stopped the program)."""
    wall_ns: int
    cpu_ns: int

    def _sum(self, name: str) -> int:
        return sum(getattr(arena, name) for arena in self.arenas)

    @property
    def system(self) -> int:
        """Obtained from the kernel by all arenas."""
        return self._sum("system")

    @property
    def free(self) -> int:
        """Free bytes of all kinds."""
        return self._sum("free")

    @property
    def held(self) -> int:
        """Whole free pages that still occupy memory or swap: what could come back."""
        return self._sum("held")

    @property
    def returned(self) -> int:
        """Whole free pages that occupy nothing."""
        return self._sum("returned")

    @property
    def slack(self) -> int:
        """Free bytes that share a page with live data; they cannot come back."""
        return self._sum("slack")

    @property
    def live(self) -> int:
        """In use, as far as arenas can tell: includes every thread's tcache."""
        return self.system - self.free

    @property
    def chunks(self) -> int:
        """Free chunks in bins and fastbins."""
        return self._sum("bins_chunks") + self._sum("fastbins_chunks")

    @property
    def settled(self) -> bool:
        """True if every arena was read at one moment of it."""
        return all(arena.settled and arena.complete and not arena.problem for arena in self.arenas)

    @property
    def longest_hold_ns(self) -> int:
        """The longest time one arena's lock was held for this."""
        return max(arena.longest_hold_ns for arena in self.arenas)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data for JSON, with the sums."""
        data = dataclasses.asdict(self)
        for name in ("system", "live", "free", "held", "returned", "slack", "chunks", "settled"):
            data[name] = getattr(self, name)
        for arena, plain in zip(self.arenas, data["arenas"], strict=True):
            for name in ("live", "free", "held", "returned", "slack"):
                plain[name] = getattr(arena, name)
        return data


def _arena(raw: dict[str, Any]) -> Arena:
    status = raw["status"]
    known = status == _native.OK
    none = Pages(0, 0, 0)
    return Arena(
        address=raw["address"],
        is_main=raw["is_main"],
        system=raw["system_bytes"] if known else 0,
        bins=raw["bins_bytes"] if known else 0,
        bins_chunks=raw["bins_chunks"] if known else 0,
        fastbins=raw["fastbins_bytes"] if known else 0,
        fastbins_chunks=raw["fastbins_chunks"] if known else 0,
        top=raw["top_bytes"] if known else 0,
        bins_pages=Pages(**raw["bins_pages"]) if known else none,
        top_pages=Pages(**raw["top_pages"]) if known else none,
        attached_threads=raw["attached_threads"],
        settled=raw["settled"],
        complete=raw["complete"],
        holds=raw["holds"],
        longest_hold_ns=raw["longest_hold_ns"],
        problem=None if known else _native.status_words(status)[0],
    )


_verified: str | None = None
"""The verdict of comparing with mallinfo, once there is one. No lock: two threads may both
compare, and a child forked in between has nothing to repair."""


def _verdict() -> str:
    """Compare if that was not done yet; raises DoubtError if the figures differ."""
    global _verified
    if _verified is not None:
        return _verified
    status, comparison = _native.verify()
    if status != _native.OK:
        raise from_status(status)
    verdict: str = comparison["verdict"]
    if verdict == "different":
        raise from_status(_native.DOUBT_FIGURES)
    if verdict == "equal":
        _verified = verdict  # else there is no answer yet: the next call tries again
    return verdict


def glibc_heap(*, hold: float = _native.DEFAULT_HOLD_NS / 1e9) -> GlibcHeap:
    """What glibc's malloc holds in this process right now.

    `hold` is the time, in seconds, after which a hold of one arena's lock ends. It lasts longer if
    the scheduler takes the CPU away meanwhile, and up to 2 ms for a list of a main arena that is
    not contiguous (brk was blocked), which is read in one hold or left out. An arena whose lock is
    busy is tried again for 100 ms, and then reported with its `problem`. The first call of a
    process also compares the figures with those of mallinfo, which, unlike giveback, waits for
    each arena (left out where the heap has more than 100,000 free chunks).

    Raises UnsupportedError where the allocator or the system is not one that giveback knows,
    DoubtError where the figures contradict each other, BusyError where the heap changed too fast.
    """
    if not 0 < hold <= 1:
        raise ValueError(f"hold is in seconds, more than 0 and at most 1, not {hold!r}")
    status, raw = _native.account(hold_ns=int(hold * 1e9))
    if status != _native.OK:
        error = from_status(status)
        if status == _native.FOREIGN_ALLOCATOR:
            provider = raw["provider"] or "the program itself"
            error = UnsupportedError(f"{error.reason} (malloc comes from {provider})", error.remedy)
        raise error
    verified = _verdict()
    parameters = raw["parameters"]
    return GlibcHeap(
        arenas=tuple(_arena(arena) for arena in raw["arenas"]),
        libc=raw["libc"],
        bins_offset=raw["glibc"]["bins_offset"],
        heap_header=raw["glibc"]["heap_header"],
        mmapped=parameters["mmapped_bytes"] if parameters else None,
        tcache=Tcache(**raw["tcache"]) if raw["tcache"] else None,
        residency=raw["residency"],
        verified=verified,
        wall_ns=raw["wall_ns"],
        cpu_ns=raw["cpu_ns"],
    )
