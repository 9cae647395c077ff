"""What single calls of malloc and free take, while memory is given back under them."""

from __future__ import annotations

from ..measure import measure_time
from ..runs import Bench, Sample
from ..scenario import (
    BASE,
    RELEASES,
    Column,
    Goal,
    Judgement,
    Options,
    Panel,
    Part,
    Scenario,
    noisy,
)
from ..variants import Variant

PAUSE_US = 100.0
"""The engine's default budget `pause`."""
TIMES = (
    ("p50_us", "p50_ns"),
    ("p99_us", "p99_ns"),
    ("p999_us", "p999_ns"),
    ("p9999_us", "p9999_ns"),
    ("longest_us", "longest_ns"),
)


def build(options: Options) -> Scenario:
    """The timer of malloc_trim is run as often as giveback: it is what people do today."""
    seconds = "1" if options.quick else "6"

    def sample(bench: Bench, variant: Variant) -> Sample:
        taken = measure_time(bench, variant, "latency", ["--seconds", seconds])
        answer = taken.pop("answer")
        return taken | {name: answer[key] / 1e3 for name, key in TIMES} | {"calls": answer["calls"]}

    part = Part(
        "",
        f"two threads time each malloc and free for {seconds} s, a burst of 64 MB each second",
        sample,
        rounds=options.rounds(1),
        peer_rounds=options.rounds(0.15),
        core=("trim",),
        columns=(
            Column("calls", "calls", 0),
            Column("p50 us", "p50_us", 3),
            Column("p99 us", "p99_us", 3),
            Column("p99.9 us", "p999_us", 3),
            Column("p99.99 us", "p9999_us", 1),
            Column("longest us", "longest_us", 0),
            *RELEASES,
            Column("returned MB", "returned_mb", 0),
            Column("RSS after MB", "rss_1s_mb", 0),
        ),
        goals=(
            Goal(
                "p99.99 - plain's, us",
                PAUSE_US,
                "p9999_us",
                (BASE, "p9999_us"),
                judgement=Judgement.DIFFERENCE,
            ),
            noisy("p99.9 / plain's", 1.05, "p999_us"),
        ),
    )
    return Scenario(
        "latency",
        "every malloc and free timed",
        (part,),
        (
            Panel("99.9 % of calls took at most, us", "p999_us", logarithmic=True),
            Panel("99.99 %", "p9999_us", logarithmic=True),
            Panel("the longest call, us", "longest_us", logarithmic=True),
        ),
    )
