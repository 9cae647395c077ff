"""The ways in which scenarios measure: memory after a spike, the time of a run, the control.

Each takes one run of one variant and returns its figures, in the units that their names end in.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ..engine_stats import Stats
from .runs import Bench, Running, Sample
from .variants import Variant

POLL_SECONDS = 0.02
QUIET_SECONDS = 2.0
"""Memory that did not fall for so long is settled."""
SETTLE_LIMIT_SECONDS = 60.0
FALL_BYTES = 1_000_000
"""What counts as a fall."""
LINGER_SECONDS = 1.0
"""Time for an engine to do its work, before figures of it are read."""


def seconds_since(moment_ns: int) -> float:
    """Since a moment of CLOCK_MONOTONIC."""
    return (time.monotonic_ns() - moment_ns) / 1e9


def wait_until(moment: float) -> None:
    """Until this moment of time.monotonic()."""
    time.sleep(max(0.0, moment - time.monotonic()))


def engine_figures(stats: Stats | None) -> Sample:
    """What the engine did and what that cost; nothing without one."""
    if stats is None:
        return {}
    returned = stats.returned / 1e6
    figures: Sample = {
        "release_calls": stats.release_calls,
        "hold_p50_us": stats.hold_p50_ns / 1e3 if stats.holds else None,
        "hold_p99_us": stats.hold_p99_ns / 1e3 if stats.holds else None,
        "hold_max_us": stats.hold_max_ns / 1e3 if stats.holds else None,
        "engine_cpu_s": stats.engine_cpu_ns / 1e9,
        "returned_mb": returned,
        "refaulted_mb": stats.refaulted / 1e6,
        "passes": stats.passes,
    }
    if returned:
        figures["calls_per_mb"] = stats.release_calls / returned
        figures["advised_per_returned"] = stats.advised / stats.returned
        figures["release_ms_per_gb"] = stats.engine_cpu_ns / 1e6 / (returned / 1e3)
    return figures


def program_figures(answer: Sample) -> Sample:
    """What a program says when all is freed, under the names of the document."""
    figures = {
        name: answer[name] for name in ("run_s", "minor_faults", "steady_cpu_s") if name in answer
    }
    return figures | {"rss_after_mb": answer["rss_freed"] / 1e6}


def trim_figures(answer: Sample) -> Sample:
    """What malloc_trim(0) did at the end, and its cost under the names of the engine's."""
    if "rss_trimmed" not in answer:
        return {}
    figures: Sample = {"trimmed_mb": answer["rss_trimmed"] / 1e6}
    if answer["trim_returned"] > FALL_BYTES:
        figures["trim_ms_per_gb"] = answer["trim_cpu_s"] * 1e3 / (answer["trim_returned"] / 1e9)
        figures["trim_hold_us"] = answer["trim_wall_s"] * 1e6
    return figures


def settle(
    running: Running, freed_at_ns: int, enough: float | None = None
) -> tuple[float | None, float, float]:
    """Watches resident memory until it has not fallen for QUIET_SECONDS.

    Returns when it first was `enough` (bytes; None if it never was, or none was given), when it
    last fell, both in seconds since `freed_at_ns`, and what it was after a second.
    """
    lowest = running.resident()
    fell = passed = seconds_since(freed_at_ns)
    reached = passed if enough is not None and lowest <= enough else None
    at_one = lowest
    while (passed - fell < QUIET_SECONDS and passed < SETTLE_LIMIT_SECONDS) or passed < 1:
        time.sleep(POLL_SECONDS)
        now, passed = running.resident(), seconds_since(freed_at_ns)
        if passed <= 1:
            at_one = now
        if reached is None and enough is not None and now <= enough:
            reached = passed
        if now < lowest - FALL_BYTES:
            lowest, fell = now, passed
    return reached, fell, at_one


def measure_memory(
    bench: Bench,
    variant: Variant,
    program: str,
    arguments: list[str],
    *,
    enough: float | None = None,
    then: Callable[[Running], Sample] | None = None,
) -> Sample:
    """A run that is watched until its memory has settled, then trimmed where that does anything.

    With `enough`, in bytes, `enough_s` says when that was reached; the limit if it never was.
    `then` may go on with the settled program before it is trimmed. Times of the run are left out:
    the program ran a short time only.
    """
    trim = ["--trim"] if variant.is_glibc else []
    with bench.start(variant, program, [*arguments, *trim]) as running:
        answer = running.read()
        running.check_loaded()
        sample = program_figures(answer)
        del sample["run_s"]
        reached, fell, at_one = settle(running, answer["freed_at_ns"], enough)
        sample |= {"settled_s": fell, "rss_1s_mb": at_one / 1e6}
        if enough is not None:
            sample["enough_s"] = SETTLE_LIMIT_SECONDS if reached is None else reached
        sample |= running.memory() | engine_figures(running.stats())
        if then is not None:
            sample |= then(running)
        running.go_on()
        last = running.read()
        sample |= trim_figures(last) | {"live_bytes": last["live_bytes"]}
        running.end()
        return sample


def measure_time(bench: Bench, variant: Variant, program: str, arguments: list[str]) -> Sample:
    """A run whose times count: its own, the whole process's CPU, and the engine's share of it."""
    with bench.start(variant, program, arguments) as running:
        answer = running.read()
        running.check_loaded()
        sample = program_figures(answer) | {"answer": answer}
        time.sleep(LINGER_SECONDS)
        sample["rss_1s_mb"] = running.resident() / 1e6
        sample |= engine_figures(running.stats())
        running.go_on()
        sample["live_bytes"] = running.read()["live_bytes"]
        return sample | running.end()


def measure_control(bench: Bench, plain: Variant) -> Sample:
    """How long a thread that only looks at the clock is stopped just now."""
    with bench.start(plain, "clock", ["--seconds", "0.2" if bench.quick else "0.5"]) as running:
        answer = running.read()
        running.go_on()
        running.end()
    return {
        "longest_stop_us": answer["longest_stop_ns"] / 1e3,
        "piece_p99_us": answer["piece_p99_ns"] / 1e3,
    }


class Calibrated:
    """A number of repetitions with which plain glibc runs for so many seconds; found out once."""

    def __init__(
        self, program: str, option: str, first: float, *, seconds: float, quick: float
    ) -> None:
        """Start with `first` repetitions; aim at `seconds`, or `quick` in quick form."""
        self.program = program
        self.option = option
        self.first = first
        self.seconds = seconds
        self.quick = quick
        self._found: list[str] | None = None

    def arguments(self, bench: Bench) -> list[str]:
        """The option with its number."""
        if self._found is None:
            wanted = self.quick if bench.quick else self.seconds
            number = self.first
            for _ in range(2):  # the second time with a number in which start-up hardly shows
                answer = self._run(bench, number)
                number = max(1.0, number * wanted / answer["run_s"])
            self._found = [self.option, f"{number:.0f}"]
        return self._found

    def _run(self, bench: Bench, number: float) -> Sample:
        plain = Variant("glibc", "")
        with bench.start(plain, self.program, [self.option, f"{number:.0f}"]) as running:
            answer = running.read()
            running.go_on()
            running.read()
            running.end()
        return answer
