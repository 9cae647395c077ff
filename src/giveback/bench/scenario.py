"""What a scenario is made of: parts that are measured, columns that are shown, goals.

A scenario asks one question of one program. A part is one series of runs for it: the program in
one shape, in all variants. A goal is a bound on a figure, or on its ratio to another variant's,
compared round by round. Figures are the names in a sample, and in the JSON's rows; they end in
their unit.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable
from typing import Any

from .runs import Bench, Sample
from .variants import AGAIN, PLAIN, Variant

BASE = "base"
"""In a goal: the plain variant that one under giveback is compared with."""
SELF = "self"
"""In a goal: the same variant, in another part."""
CONTROL = "clock"
"""In samples: a thread that only looks at the clock, once a round."""


class Judgement(enum.Enum):
    """How a goal is judged."""

    PLAIN = "plain"
    """The interval against the bound: a figure that has little noise."""
    NOISY = "noisy"
    """A ratio of times: only beside an A/A within limits, with enough pairs."""
    DIFFERENCE = "difference"
    """A difference of times, beside the A/A's."""
    STOPPED = "stopped"
    """Wall time of a hold, which the machine lengthens by stopping threads: beside the control."""


@dataclasses.dataclass(frozen=True)
class Goal:
    """A bound, from above, on a figure of each variant under giveback."""

    text: str
    bound: float
    figure: str
    to: tuple[str, str] | None = None
    """Divide by (difference: take off) this: BASE, SELF or a row's name, and its figure."""
    to_part: str = ""
    """The part in which that is; this one if not given."""
    judgement: Judgement = Judgement.PLAIN
    control: str = ""
    """STOPPED: the control's figure."""
    least: tuple[str, float] | None = None
    """A figure of the base that must be so large for the goal to be decided."""
    only_new_kernel: bool = False
    """Not for rows with kernel=old."""


@dataclasses.dataclass(frozen=True)
class Column:
    """A figure that the table shows."""

    heading: str
    figure: str
    digits: int = 2


Samples = dict[str, list[Sample]]
"""By variant. Each sample has its "round"; one that failed has "error" and no figure."""


@dataclasses.dataclass(frozen=True)
class Part:
    """One series of runs. `sample` takes one variant's run, or several samples of one run."""

    name: str
    """Unique in the scenario."""
    about: str
    sample: Callable[[Bench, Variant], Sample | list[Sample]]
    rounds: int
    """Of plain glibc, its A/A, giveback, and what else is compared with them in time."""
    peer_rounds: int
    """Of all other variants: what they show needs no such precision."""
    columns: tuple[Column, ...]
    goals: tuple[Goal, ...] = ()
    row: str = ""
    """The label of its rows; parts with the same one share their rows."""
    together: bool = False
    """The variants of a round run side by side: they hardly work, and meet the same machine."""
    control: bool = False
    """Run the control once a round."""
    core: tuple[str, ...] = ()
    """Peers that are run as often as plain glibc."""
    leaves_out: Callable[[Variant], bool] | None = None
    """Variants that it does not run."""

    def rounds_of(self, variant: Variant) -> int:
        """How often this variant is run."""
        if self.leaves_out is not None and self.leaves_out(variant):
            return 0
        core = variant.engine is not None or variant.name in (PLAIN, AGAIN, *self.core)
        return self.rounds if core or variant.libc else min(self.rounds, self.peer_rounds)


@dataclasses.dataclass(frozen=True)
class Panel:
    """A figure in the plot."""

    title: str
    figure: str
    row: str = ""
    logarithmic: bool = False


@dataclasses.dataclass(frozen=True)
class Scenario:
    """One question, its parts and its plot."""

    name: str
    about: str
    parts: tuple[Part, ...]
    panels: tuple[Panel, ...]


@dataclasses.dataclass(frozen=True)
class Options:
    """What a bench was asked for."""

    pairs: int
    quick: bool

    def rounds(self, share: float, least: int = 2) -> int:
        """A share of the pairs; two in quick form."""
        return min(2, self.pairs) if self.quick else max(least, round(self.pairs * share))


@dataclasses.dataclass
class Result:
    """A scenario's samples, by part; `stopped` before all were taken."""

    scenario: Scenario
    variants: list[Variant]
    samples: dict[str, Samples]
    stopped: bool = False


def noisy(text: str, bound: float, figure: str, least: tuple[str, float] | None = None) -> Goal:
    """A ratio of times to plain glibc's."""
    return Goal(text, bound, figure, (BASE, figure), judgement=Judgement.NOISY, least=least)


def hold(text: str, bound_us: float, figure: str, control: str) -> Goal:
    """A length of holds, in wall time."""
    return Goal(text, bound_us, figure, judgement=Judgement.STOPPED, control=control)


def values(samples: Iterable[Sample], figure: str) -> dict[Any, float]:
    """One figure by round, where it is there."""
    return {s["round"]: s[figure] for s in samples if s.get(figure) is not None}


RELEASES = (
    Column("hold p50 us", "hold_p50_us", 0),
    Column("p99", "hold_p99_us", 0),
    Column("max", "hold_max_us", 0),
    Column("engine CPU s", "engine_cpu_s", 3),
)
"""What releasing cost."""
