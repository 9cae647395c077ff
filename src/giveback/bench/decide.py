"""Whether the goals of a scenario were met by what its samples show."""

from __future__ import annotations

import dataclasses
from typing import Any

from .scenario import BASE, CONTROL, SELF, Goal, Judgement, Part, Result, Samples, values
from .statistics import (
    Estimate,
    Verdict,
    estimate,
    judge,
    judge_difference,
    judge_noisy,
    judge_stopped,
)
from .variants import AGAIN, OLD_KERNEL, PLAIN, Variant


@dataclasses.dataclass(frozen=True)
class Decision:
    """What became of one goal for one variant, and what that rests on."""

    part: str
    variant: str
    goal: str
    bound: float
    seen: Estimate | None
    same: Estimate | None
    """The same figure of plain glibc compared with itself, where that counts."""
    verdict: Verdict
    why: str

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return dataclasses.asdict(self) | {"verdict": self.verdict.value}


def compare(
    samples: Samples,
    of: tuple[str, str],
    to: tuple[str, str] | None = None,
    *,
    others: Samples | None = None,
    difference: bool = False,
) -> Estimate | None:
    """A figure of a variant, or its ratio or difference to another's, round by round.

    The other's samples are in `others`, where that is given.
    """
    above = values(samples.get(of[0], ()), of[1])
    if to is None:
        return estimate(list(above.values()))
    below = values((samples if others is None else others).get(to[0], ()), to[1])
    rounds = [number for number in above if number in below]
    if difference:
        return estimate([above[number] - below[number] for number in rounds])
    return estimate([above[number] / below[number] for number in rounds if below[number]])


def _judge(goal: Goal, samples: Samples, seen: Estimate) -> tuple[Verdict, str, Estimate | None]:
    same = None
    if goal.to and goal.judgement in (Judgement.NOISY, Judgement.DIFFERENCE):
        difference = goal.judgement is Judgement.DIFFERENCE
        figure = goal.to[1]
        same = compare(samples, (AGAIN, figure), (PLAIN, figure), difference=difference)
    if goal.judgement is Judgement.NOISY:
        return *judge_noisy(seen, goal.bound, same), same
    if goal.judgement is Judgement.DIFFERENCE:
        return *judge_difference(seen, goal.bound, same), same
    if goal.judgement is Judgement.STOPPED:
        stops = compare(samples, (CONTROL, goal.control))
        return *judge_stopped(seen, goal.bound, stops), None
    return *judge(seen, goal.bound), None


def _decide(result: Result, part: Part, goal: Goal, variant: Variant) -> Decision:
    samples = result.samples.get(part.name, {})
    others = result.samples.get(goal.to_part, {}) if goal.to_part else samples
    to = goal.to
    if to is not None:
        to = ({BASE: variant.base, SELF: variant.name}.get(to[0], to[0]), to[1])
    difference = goal.judgement is Judgement.DIFFERENCE
    seen = compare(samples, (variant.name, goal.figure), to, others=others, difference=difference)
    names = [variant.name, *([to[0]] if to else [])]
    errors = [s["error"] for name in names for s in samples.get(name, []) if "error" in s]
    same = None
    if errors:
        verdict, why = Verdict.MISSED, f"{len(errors)} runs failed: {errors[0]}"
    elif seen is None:
        lacking = [v.missing for v in result.variants if v.name in names and v.missing]
        absent = [name for name in names if name not in {v.name for v in result.variants}]
        reason = f"row {absent[0]} was not asked for" if absent else f"no {goal.figure}"
        verdict, why = Verdict.NOT_MEASURED, lacking[0] if lacking else reason
    else:
        verdict, why, same = _judge(goal, samples, seen)
    if verdict is Verdict.MET and goal.least:
        reached = compare(samples, (variant.base, goal.least[0]))
        if reached is None or reached.median < goal.least[1]:
            verdict = Verdict.CANNOT_TELL
            why = f"{goal.least[0]} of {variant.base} is below {goal.least[1]:g}"
    return Decision(
        part.row or part.name, variant.name, goal.text, goal.bound, seen, same, verdict, why
    )


def decide(result: Result) -> list[Decision]:
    """Every goal of every part, for each variant under giveback."""
    engines = [variant for variant in result.variants if variant.engine is not None]
    return [
        _decide(result, part, goal, variant)
        for part in result.scenario.parts
        for goal in part.goals
        for variant in engines
        if part.rounds_of(variant)
        and not (goal.only_new_kernel and OLD_KERNEL in (variant.engine or ""))
    ]
