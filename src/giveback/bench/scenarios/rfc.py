"""The workload of the glibc proposal: what is left of 16 threads' churn, and what it costs."""

from __future__ import annotations

from ..measure import Calibrated, measure_memory, measure_time
from ..runs import Bench, Sample
from ..scenario import (
    BASE,
    RELEASES,
    Column,
    Goal,
    Options,
    Panel,
    Part,
    Scenario,
    hold,
    noisy,
)
from ..variants import Variant

DEFAULTS = ("jemalloc", "mimalloc", "tcmalloc", "arena-max-2", "trim-threshold")
RUN_SECONDS = 3.6
STOPS = (Column("100 us take p99 us", "piece_p99_us", 0),)


def _memory(options: Options) -> Part:
    volume = "2" if options.quick else "10"

    def sample(bench: Bench, variant: Variant) -> Sample:
        return measure_memory(bench, variant, "rfc", ["--volume-gb", volume])

    return Part(
        "memory",
        f"RSS after 16 threads went through {volume} GB of short-lived blocks, 256 MB live",
        sample,
        rounds=options.rounds(0.5),
        peer_rounds=options.rounds(0.25),
        columns=(
            Column("RSS after MB", "rss_after_mb", 0),
            Column("1 s", "rss_1s_mb", 0),
            Column("settled", "rss_settled_mb", 0),
            Column("lazy", "lazy_mb", 0),
            Column("trimmed", "trimmed_mb", 0),
            *RELEASES,
            Column("CPU ms/GB", "release_ms_per_gb", 0),
            Column("trim's", "trim_ms_per_gb", 0),
            *STOPS,
        ),
        goals=(
            *(
                Goal(
                    f"RSS settled / {name}'s",
                    0.35,
                    "rss_settled_mb",
                    (name, "rss_settled_mb"),
                )
                for name in DEFAULTS
            ),
            Goal("RSS 1 s after / trimmed", 1.03, "rss_1s_mb", (BASE, "trimmed_mb")),
            Goal(
                "engine's CPU a byte / malloc_trim's",
                1.1,
                "release_ms_per_gb",
                (BASE, "trim_ms_per_gb"),
            ),
            hold("hold p99, us", 300, "hold_p99_us", "piece_p99_us"),
        ),
        control=True,
    )


def _time(options: Options) -> Part:
    volume = Calibrated("rfc", "--volume-gb", 20, seconds=RUN_SECONDS, quick=0.3)

    def sample(bench: Bench, variant: Variant) -> Sample:
        return measure_time(bench, variant, "rfc", volume.arguments(bench))

    long_enough = ("run_s", 3.0)
    return Part(
        "time",
        f"the same for some {RUN_SECONDS:g} s: run time and CPU",
        sample,
        rounds=options.rounds(1),
        peer_rounds=options.rounds(0.2),
        columns=(
            Column("run s", "run_s"),
            Column("CPU s", "cpu_s"),
            Column("minor faults", "minor_faults", 0),
            Column("RSS 1 s MB", "rss_1s_mb", 0),
            *RELEASES,
            *STOPS,
        ),
        goals=(
            noisy("run time / plain's", 1.05, "run_s", long_enough),
            noisy("CPU / plain's", 1.06, "cpu_s", long_enough),
        ),
        control=True,
    )


def build(options: Options) -> Scenario:
    """RSS from short runs, times from long ones."""
    return Scenario(
        "rfc",
        "16 threads churn through blocks of 1 to 64 KB, 256 MB stay",
        (_memory(options), _time(options)),
        (Panel("RSS settled, MB", "rss_settled_mb"), Panel("run time, s", "run_s")),
    )
