"""What repeated runs say: medians, bootstrap intervals, and whether a goal was met.

A bound on a ratio that noise can move holds when the upper end of its 95 % interval is under it,
over at least 20 pairs, and if the same program compared with itself (A/A) differs by no more than
2 %.
"""

from __future__ import annotations

import dataclasses
import enum
import random
import statistics
from collections.abc import Callable, Sequence

NOISE = 0.02
QUIET = 0.5
PAIRS = 20


def interval(
    samples: Sequence[float], of: Callable[[Sequence[float]], float]
) -> tuple[float, float]:
    """Bootstrap 95 % interval of a statistic."""
    rng = random.Random(1)
    values = sorted(of(rng.choices(samples, k=len(samples))) for _ in range(2000))
    return values[49], values[1949]


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A median, its 95 % interval, and the samples' number and largest."""

    median: float
    low: float
    high: float
    largest: float
    count: int


def estimate(samples: Sequence[float]) -> Estimate | None:
    """None without samples."""
    if not samples:
        return None
    low, high = interval(samples, statistics.median)
    return Estimate(statistics.median(samples), low, high, max(samples), len(samples))


class Verdict(enum.Enum):
    """What became of a goal."""

    MET = "met"
    MISSED = "MISSED"
    CANNOT_TELL = "cannot tell on this machine"
    NOT_MEASURED = "not measured"


def judge(seen: Estimate, bound: float) -> tuple[Verdict, str]:
    """Whether a figure that has little noise stays within a bound, and why it cannot be told."""
    if seen.high <= bound:
        return Verdict.MET, ""
    if seen.low > bound:
        return Verdict.MISSED, ""
    return Verdict.CANNOT_TELL, "the interval contains the bound"


def judge_difference(seen: Estimate, bound: float, same: Estimate | None) -> tuple[Verdict, str]:
    """The same for a difference of times; `same` is the difference of a program to itself.

    As with ratios, noise can hide that a goal was met, not a loss that is larger than it.
    """
    if same is None:
        return Verdict.CANNOT_TELL, "no A/A"
    verdict, why = judge(seen, bound)
    noise = max(abs(same.low), abs(same.high))
    if verdict is Verdict.MISSED and seen.low <= bound + noise:
        return Verdict.CANNOT_TELL, f"A/A differs by up to {noise:,.3g}"
    return verdict, why


def judge_stopped(seen: Estimate, bound: float, stops: Estimate | None) -> tuple[Verdict, str]:
    """The same for a wall time that the machine lengthens by stopping threads.

    `stops` is what a thread saw that only looked at the clock. Where that alone is half the bound,
    only a loss that is larger than it can be told.
    """
    verdict, why = judge(seen, bound)
    if verdict is Verdict.MET or stops is None:
        return verdict, why
    if seen.low > bound + stops.high or stops.median < bound * QUIET:
        return verdict, why
    return Verdict.CANNOT_TELL, f"`clock` alone sees {stops.median:,.0f}"


def judge_noisy(seen: Estimate, bound: float, same: Estimate | None) -> tuple[Verdict, str]:
    """The same for a ratio of times; `same` is the ratio of a program to itself.

    A noisy machine can hide that a goal was met, not a loss that is larger than its noise.
    """
    if same is None:
        return Verdict.CANNOT_TELL, "no A/A"
    noise = abs(same.median - 1)
    if seen.low > bound * (1 + noise):
        return Verdict.MISSED, ""
    if noise > NOISE:
        return Verdict.CANNOT_TELL, f"A/A is {same.median:.3f}"
    if seen.count < PAIRS:
        return Verdict.CANNOT_TELL, f"{seen.count} pairs, not {PAIRS}"
    return judge(seen, bound)
