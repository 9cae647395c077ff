"""What an engine did, as it publishes it: figures of this process's engine or of another's.

Only words and units are made here; nothing is asked of anybody. Each figure is right by itself;
together they may be of two moments a few microseconds apart.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Literal

from . import _native

State = Literal["none", "runs", "refuses"]
_STATES: dict[int, State] = {
    _native.ENGINE_NONE: "none",
    _native.ENGINE_RUNS: "runs",
    _native.ENGINE_REFUSES: "refuses",
}
_MILLION = 1e6


def words(status: int) -> tuple[str, str | None]:
    """Text and remedy of a status that another version may have written."""
    if not 0 <= status <= _native.DOUBT_FIGURES:
        return f"a reason that this version does not know (number {status})", None
    return _native.status_words(status)


@dataclasses.dataclass(frozen=True)
class Stats:
    """An engine's figures since it started. Sizes are bytes; names in _ns are nanoseconds."""

    state: State
    """"runs"; "refuses": it is there, but `reason` keeps it from touching anything; "none"."""
    reason: str | None
    """Why it refuses, or why there is none, as far as known."""
    remedy: str | None
    """What to do about that."""
    policy: str
    """"background", "trim" or "off", which it also is where there is no engine."""

    cpu: float
    """Budget: share of one core for searching and for refaults, 0 to 1."""
    duty: float
    """Budget: share of time in which a lock that others want may be the engine's, 0 to 1."""
    pause_ns: int
    """Budget: longest time that a hold lets somebody wait, wall."""
    age_ns: int
    """How long memory must have stayed free before it is released."""

    started_ns: int
    """When it started: since the epoch, by the wall clock."""
    passes: int
    """Passes that looked at anything."""
    wakeups: int
    """How often its thread woke up."""
    arenas: int
    """Arenas at the last pass."""
    looks: int
    """Arenas walked, in all passes."""

    returned: int
    """Pages that were in memory, or in swap, and were given back to the system."""
    returned_top: int
    """Of these, from the ends of arenas."""
    advised: int
    """Given to madvise or process_madvise; what exceeds `returned` was not resident any more."""
    refaulted: int
    """Came back into use after the engine had released it: what releasing cost the program."""
    held: int
    """Whole free pages in memory, or in swap, when last looked at; some may be too young yet."""
    release_calls: int
    """System calls that released pages."""
    release_failures: int
    """Of these, refused by the kernel."""
    release_error: str | None
    """Why it refused, the last time."""
    trims: int
    """Calls of malloc_trim(0): under policy trim, or as the fallback."""
    trim_ns: int
    """Wall time of all of them."""
    trim_max_ns: int
    """Of the longest."""

    engine_cpu_ns: int
    """CPU time of the engine's thread, all of it, whatever budget it is charged to."""
    search_cpu_ns: int
    """Of it, what was charged to the budget `cpu`."""
    over_budget: int
    """Passes cut short by that budget."""

    holds: int
    """How often an arena's lock was held."""
    hold_ns: int
    """Wall time of all holds."""
    hold_p50_ns: int
    """Half of the holds were not longer; right within 9 %."""
    hold_p99_ns: int
    """99 of 100 holds were not longer; right within 9 %."""
    hold_max_ns: int
    """The longest hold."""
    holds_cut: int
    """Holds that ended early since somebody waited."""
    busy: int
    """Arenas skipped since their lock was taken."""
    out_of_reach: int
    """Lists too long to be walked while others wanted the lock."""
    refused: dict[str, int]
    """What kept it from an arena, in words, and how often."""

    kernel_path: str
    """How pages are released: "process_madvise" (many ranges a call) or "madvise"."""
    residency: str
    """Where the kernel is asked what is resident: PAGEMAP_SCAN, pagemap, mincore or none."""

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data for JSON; what is not known is None."""
        return dataclasses.asdict(self)


def from_raw(raw: dict[str, Any], why_none: int | None = None) -> Stats:
    """From the dictionary of `_native`; `why_none` is a status that explains state "none"."""
    state = _STATES.get(raw["state"], "none")
    status = raw["reason"] if state == "refuses" else why_none
    reason, remedy = (None, None) if status is None or state == "runs" else words(status)
    failed = raw["release_errno"]
    return Stats(
        state=state,
        reason=reason,
        remedy=remedy,
        policy="off" if state == "none" else raw["policy"],
        cpu=raw["cpu_ppm"] / _MILLION,
        duty=raw["duty_ppm"] / _MILLION,
        pause_ns=raw["pause_ns"],
        age_ns=raw["age_ns"],
        started_ns=raw["started_ns"],
        passes=raw["passes"],
        wakeups=raw["wakeups"],
        arenas=raw["arenas"],
        looks=raw["looks"],
        returned=raw["returned_bytes"],
        returned_top=raw["returned_top_bytes"],
        advised=raw["advised_bytes"],
        refaulted=raw["refaulted_bytes"],
        held=raw["held_bytes"],
        release_calls=raw["release_calls"],
        release_failures=raw["release_failures"],
        release_error=os.strerror(failed) if 0 < failed < 4096 else None,
        trims=raw["trims"],
        trim_ns=raw["trim_ns"],
        trim_max_ns=raw["trim_max_ns"],
        engine_cpu_ns=raw["engine_cpu_ns"],
        search_cpu_ns=raw["search_cpu_ns"],
        over_budget=raw["over_budget"],
        holds=raw["holds"],
        hold_ns=raw["held_ns"],
        hold_p50_ns=raw["hold_p50_ns"],
        hold_p99_ns=raw["hold_p99_ns"],
        hold_max_ns=raw["hold_max_ns"],
        holds_cut=raw["holds_cut"],
        busy=raw["busy"],
        out_of_reach=raw["out_of_reach"],
        refused={words(status)[0]: times for status, times in raw["refused"].items()},
        kernel_path="process_madvise" if raw["kernel_path"] == 0 else "madvise",
        residency=raw["residency"],
    )
