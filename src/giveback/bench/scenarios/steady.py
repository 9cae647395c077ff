"""Programs that work evenly: what is freed is soon taken again, so nothing should happen.

The programs of a round run side by side, each at a fixed pace of some fifth of a core, so that they
meet the same machine. Their CPU is read off in windows of the same three seconds: as many pairs.
"""

from __future__ import annotations

import time

from ..measure import engine_figures, program_figures, wait_until
from ..runs import Bench, Running, Sample
from ..scenario import BASE, Column, Goal, Options, Panel, Part, Scenario, noisy
from ..variants import AGAIN, PLAIN, Variant

SHAPES = (
    ("requests", "four threads answer requests of 40 blocks of 64 bytes to 8 KB"),
    ("cache", "entries of 100 bytes to 4 KB, replaced in random order"),
    ("buffers", "buffers of 4 to 100 KB, replaced in random order"),
    ("handover", "messages of 200 bytes to 16 KB, allocated by one thread and freed by another"),
    ("strings", "strings that grow by realloc from 64 bytes to 256 KB"),
)
SAWTOOTH = ("batches", "8 MB of results a second, freed at once: a spike each second, no goal")
WINDOW_SECONDS = 3.0
CORE = (PLAIN, AGAIN, "trim")


def _watch(running: Running, end: float) -> list[Sample]:
    """The process's CPU in each window of the clock that is whole."""
    samples: list[Sample] = []
    window = int(time.monotonic() / WINDOW_SECONDS) + 1
    wait_until(window * WINDOW_SECONDS)
    before = running.cpu_s()
    while (window + 1) * WINDOW_SECONDS < end:
        wait_until((window + 1) * WINDOW_SECONDS)
        now = running.cpu_s()
        samples.append({"round": f"window {window}", "window_cpu_s": now - before})
        before, window = now, window + 1
    return samples


def _sample(bench: Bench, variant: Variant, shape: str, seconds: float) -> list[Sample]:
    arguments = ["--shape", shape, "--seconds", f"{seconds:g}"]
    # The program's own clock begins later: it still works when ours is through.
    end = time.monotonic() + seconds
    with bench.start(variant, "steady", arguments, seconds + 60) as running:
        windows = _watch(running, end)
        answer = running.read()
        running.check_loaded()
        sample = program_figures(answer) | running.memory() | engine_figures(running.stats())
        running.go_on()
        sample["live_bytes"] = running.read()["live_bytes"]
        return [*windows, sample | running.end()]


def _is_not_compared(variant: Variant) -> bool:
    """Side by side there is room for a few only: those that may be compared in CPU."""
    return variant.engine is None and variant.libc is None and variant.name not in CORE


def _part(options: Options, shape: str, about: str, *, goals: tuple[Goal, ...]) -> Part:
    seconds = 10.0 if options.quick else 60.0

    def sample(bench: Bench, variant: Variant) -> list[Sample]:
        return _sample(bench, variant, shape, seconds)

    return Part(
        shape,
        f"{about}, {seconds:g} s",
        sample,
        rounds=1 if options.quick else options.rounds(0.1),
        peer_rounds=1 if options.quick else options.rounds(0.1),
        columns=(
            Column("CPU s in 3 s", "window_cpu_s", 3),
            Column("minor faults", "minor_faults", 0),
            Column("RSS MB", "rss_settled_mb", 1),
            Column("engine CPU s", "engine_cpu_s", 3),
            Column("passes", "passes", 0),
            Column("returned MB", "returned_mb", 1),
            Column("refaulted MB", "refaulted_mb", 1),
        ),
        goals=goals,
        row=shape,
        together=True,
        core=("trim",),
        leaves_out=_is_not_compared,
    )


def build(options: Options) -> Scenario:
    """Five shapes with goals, and a sawtooth beside them."""
    goals = (
        Goal("minor faults / plain's", 1.02, "minor_faults", (BASE, "minor_faults")),
        noisy("CPU / plain's", 1.02, "window_cpu_s"),
    )
    parts = [_part(options, shape, about, goals=goals) for shape, about in SHAPES]
    parts.append(_part(options, *SAWTOOTH, goals=()))
    return Scenario(
        "steady",
        "churn without a spike",
        tuple(parts),
        tuple(Panel(f"{shape}: CPU s in 3 s", "window_cpu_s", shape) for shape, _ in SHAPES[:3]),
    )
