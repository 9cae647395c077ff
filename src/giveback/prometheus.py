"""An engine's figures in Prometheus's text format, for node_exporter's textfile collector."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .engine_stats import Stats

_NS = 1e-9


def _escaped(value: str) -> str:
    """A label's value."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _families(stats: Stats) -> Iterator[tuple[str, str, str, float]]:
    """Name, type, help and value of each metric that has one value."""
    yield "up", "gauge", "1 if the engine runs, 0 if it refuses.", stats.state == "runs"
    yield "start_time_seconds", "gauge", "Start, since the epoch.", stats.started_ns * _NS
    yield "passes_total", "counter", "Passes that looked at anything.", stats.passes
    yield "wakeups_total", "counter", "How often the engine woke up.", stats.wakeups
    yield "arenas", "gauge", "Arenas of malloc.", stats.arenas
    yield "looks_total", "counter", "Arenas walked.", stats.looks
    yield "returned_bytes_total", "counter", "Memory given back to the system.", stats.returned
    text = "Of returned bytes, from the ends of arenas."
    yield "returned_top_bytes_total", "counter", text, stats.returned_top
    yield "advised_bytes_total", "counter", "Memory given to madvise.", stats.advised
    text = "Memory in use again after it was given back."
    yield "refaulted_bytes_total", "counter", text, stats.refaulted
    yield "held_bytes", "gauge", "Whole free pages in memory, when last looked at.", stats.held
    yield "release_calls_total", "counter", "System calls that released.", stats.release_calls
    text = "Of release calls, refused by the kernel."
    yield "release_failures_total", "counter", text, stats.release_failures
    text = "CPU time of the engine, all of it."
    yield "cpu_seconds_total", "counter", text, stats.engine_cpu_ns * _NS
    text = "Of CPU time, charged to the budget cpu."
    yield "search_cpu_seconds_total", "counter", text, stats.search_cpu_ns * _NS
    text = "Passes cut short by the budget cpu."
    yield "over_budget_passes_total", "counter", text, stats.over_budget
    yield "hold_max_seconds", "gauge", "The longest hold of a lock.", stats.hold_max_ns * _NS
    yield "holds_cut_total", "counter", "Holds ended since somebody waited.", stats.holds_cut
    yield "busy_arenas_total", "counter", "Arenas skipped: lock taken.", stats.busy
    yield "out_of_reach_lists_total", "counter", "Lists skipped: too long.", stats.out_of_reach
    yield "trims_total", "counter", "Calls of malloc_trim(0).", stats.trims
    yield "trim_seconds_total", "counter", "Wall time of these.", stats.trim_ns * _NS


def exposition(pid: int, command: str, stats: Stats) -> str:
    """The whole file, with a line end at its end."""
    labels = f'pid="{pid}",comm="{_escaped(command)}"'
    lines = []

    def family(name: str, kind: str, text: str) -> None:
        lines.append(f"# HELP giveback_{name} {text}")
        lines.append(f"# TYPE giveback_{name} {kind}")

    for name, kind, text, value in _families(stats):
        family(name, kind, text)
        lines.append(f"giveback_{name}{{{labels}}} {float(value)!r}")

    family("hold_seconds", "summary", "How long a lock was held, wall time.")
    for quantile, ns in (("0.5", stats.hold_p50_ns), ("0.99", stats.hold_p99_ns)):
        lines.append(f'giveback_hold_seconds{{{labels},quantile="{quantile}"}} {ns * _NS!r}')
    lines.append(f"giveback_hold_seconds_sum{{{labels}}} {stats.hold_ns * _NS!r}")
    lines.append(f"giveback_hold_seconds_count{{{labels}}} {float(stats.holds)!r}")

    if stats.refused:
        family("refused_total", "counter", "Arenas left alone, by reason.")
        for reason, times in stats.refused.items():
            lines.append(
                f'giveback_refused_total{{{labels},reason="{_escaped(reason)}"}} {float(times)!r}'
            )

    family("info", "gauge", "What the engine is told to do, and why it does not.")
    lines.append(
        f'giveback_info{{{labels},policy="{stats.policy}",state="{stats.state}",'
        f'reason="{_escaped(stats.reason or "")}"}} 1.0'
    )
    return "\n".join(lines) + "\n"


def write(path: Path, text: str) -> None:
    """Put the text in the place of the file at once: who reads it sees the old one or this.

    Raises OSError. Its permissions are those of any new file: other users read it.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is there, and not a regular file")
    # The collector takes files that end in .prom only. Made anew: nobody else's file or link.
    descriptor, name = tempfile.mkstemp(".tmp", f".{path.name}.", path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as stream:
            stream.write(text)
        mask = os.umask(0o022)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
