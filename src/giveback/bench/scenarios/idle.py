"""What a process pays that has nothing to give back, and how soon a new spike is noticed."""

from __future__ import annotations

import time

from ..measure import engine_figures, program_figures, seconds_since, settle, trim_figures
from ..runs import Bench, Running, Sample
from ..scenario import Column, Goal, Options, Panel, Part, Scenario
from ..variants import Variant

NOTICE_LIMIT_SECONDS = 5.0
POLL_SECONDS = 0.005


def _wait_for_fall(running: Running, spike: Sample) -> float:
    """Seconds from the spike's last free until a tenth of it is left; the limit if it stays."""
    enough = spike["rss_before"] + (spike["rss_spike"] - spike["rss_before"]) / 10
    while True:
        passed = seconds_since(spike["freed_at_ns"])
        if passed >= NOTICE_LIMIT_SECONDS or running.resident() <= enough:
            return min(passed, NOTICE_LIMIT_SECONDS)
        time.sleep(POLL_SECONDS)


def _sample(bench: Bench, variant: Variant, seconds: float) -> Sample:
    """CPU and wake-ups by the kernel's count, which has all that the process does."""
    trim = ["--trim"] if variant.is_glibc else []
    with bench.start(variant, "idle", trim, seconds + 120) as running:
        answer = running.read()
        running.check_loaded()
        settle(running, answer["freed_at_ns"])
        cpu, wakeups, began = running.cpu_s(), running.wakeups(), time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - began
        sample = {
            "idle_cpu_ms": (running.cpu_s() - cpu) * 1e3 * 60 / took,
            "idle_wakeups": (running.wakeups() - wakeups) / took,
        }
        sample |= running.memory()
        running.go_on()
        second = running.read()
        sample["noticed_s"] = _wait_for_fall(running, second)
        sample |= program_figures(second) | engine_figures(running.stats())
        running.go_on()
        last = running.read()
        return sample | trim_figures(last) | {"live_bytes": last["live_bytes"]} | running.end()


def build(options: Options) -> Scenario:
    """Idle processes do not disturb each other: all rows run side by side."""
    seconds = 3.0 if options.quick else 60.0

    def sample(bench: Bench, variant: Variant) -> Sample:
        return _sample(bench, variant, seconds)

    part = Part(
        "",
        f"settled for {seconds:g} s after a spike of 200 MB, then another one",
        sample,
        rounds=1 if options.quick else options.rounds(0.1),
        peer_rounds=1 if options.quick else options.rounds(0.1),
        columns=(
            Column("CPU ms in 60 s", "idle_cpu_ms"),
            Column("wake-ups/s", "idle_wakeups"),
            Column("RSS idle MB", "rss_settled_mb", 1),
            Column("spike gone after s", "noticed_s"),
        ),
        goals=(
            Goal("CPU of a settled process in 60 s, ms", 1, "idle_cpu_ms"),
            Goal("wake-ups of a settled process a second", 1, "idle_wakeups"),
            Goal("a spike is gone after, s", 1.5, "noticed_s"),
        ),
        together=True,
    )
    return Scenario(
        "idle",
        "a process that does nothing after a spike of 200 MB",
        (part,),
        (
            Panel("CPU in a minute, ms", "idle_cpu_ms"),
            Panel("seconds until a spike is gone (5: never)", "noticed_s"),
        ),
    )
