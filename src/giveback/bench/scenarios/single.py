"""A program of one thread: what it pays for becoming multi-threaded, and for being looked after."""

from __future__ import annotations

from ..measure import Calibrated, measure_time
from ..runs import Bench, Sample
from ..scenario import Column, Options, Panel, Part, Scenario, noisy
from ..variants import Variant

RUN_SECONDS = 3.3


def build(options: Options) -> Scenario:
    """It reads lines and counts words; the number of rounds is such that it runs long enough."""
    rounds = Calibrated("single", "--rounds", 60, seconds=RUN_SECONDS, quick=0.3)

    def sample(bench: Bench, variant: Variant) -> Sample:
        return measure_time(bench, variant, "single", rounds.arguments(bench))

    long_enough = ("run_s", 3.0)
    part = Part(
        "",
        f"lines are read and words counted for some {RUN_SECONDS:g} s",
        sample,
        rounds=options.rounds(1),
        peer_rounds=options.rounds(0.2),
        columns=(
            Column("run s", "run_s", 3),
            Column("CPU s", "cpu_s", 3),
            Column("minor faults", "minor_faults", 0),
            Column("engine CPU s", "engine_cpu_s", 4),
            Column("passes", "passes", 0),
        ),
        goals=(
            noisy("run time / plain's", 1.02, "run_s", long_enough),
            noisy("CPU / plain's", 1.02, "cpu_s", long_enough),
        ),
    )
    return Scenario("single", "a program of one thread", (part,), (Panel("run time, s", "run_s"),))
