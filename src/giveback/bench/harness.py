"""Takes a scenario's samples: the variants of each round in random order, or side by side."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from .measure import measure_control
from .runs import Bench, RunError, Sample
from .scenario import CONTROL, Part, Result, Samples
from .variants import PLAIN, Variant


class Progress(Protocol):
    """Is told of each run that is done."""

    def begin(self, text: str, runs: int) -> None:
        """A part with so many runs begins."""

    def advance(self, text: str) -> None:
        """A run begins of what the text names; all before are done."""


def _take(bench: Bench, part: Part, variant: Variant, number: int) -> list[Sample]:
    try:
        taken = part.sample(bench, variant)
    except RunError as error:
        taken = {"error": error.reason}
    samples = taken if isinstance(taken, list) else [taken]
    return [{"round": number} | sample for sample in samples]


def _rounds(part: Part, variants: list[Variant]) -> Iterator[tuple[int, list[Variant]]]:
    """Who runs in each round, in random order; rounds of the fewer are spread over all."""
    order = random.Random()
    for number in range(part.rounds):
        present = [
            variant
            for variant in variants
            if not variant.missing
            and (number + 1) * part.rounds_of(variant) // part.rounds
            > number * part.rounds_of(variant) // part.rounds
        ]
        order.shuffle(present)
        yield number, present


def _take_together(
    bench: Bench, part: Part, present: list[Variant], number: int
) -> list[tuple[Variant, list[Sample]]]:
    with ThreadPoolExecutor(len(present)) as pool:
        try:
            found = pool.map(lambda variant: _take(bench, part, variant, number), present)
            return list(zip(present, found, strict=True))
        except KeyboardInterrupt:
            bench.kill_all()  # who waits for a process goes on, and the pool can end
            raise


def _take_part(bench: Bench, part: Part, result: Result, progress: Progress) -> None:
    samples: Samples = result.samples.setdefault(part.name, {})
    rounds = list(_rounds(part, result.variants))
    plain = next(variant for variant in result.variants if variant.name == PLAIN)
    runs = len(rounds) if part.together else sum(len(present) for _, present in rounds)
    progress.begin(f"{result.scenario.name} {part.name}".strip(), runs)
    for number, present in rounds:
        if part.control:
            samples.setdefault(CONTROL, []).append(
                {"round": number} | measure_control(bench, plain)
            )
        if part.together:
            progress.advance(f"round {number + 1} of {part.rounds}")
            for variant, taken in _take_together(bench, part, present, number):
                samples.setdefault(variant.name, []).extend(taken)
            continue
        for variant in present:
            progress.advance(f"round {number + 1} of {part.rounds}, {variant.name}")
            samples.setdefault(variant.name, []).extend(_take(bench, part, variant, number))


def take(bench: Bench, result: Result, progress: Progress) -> None:
    """Takes all samples into `result`; with Ctrl-C what there is by then stays there."""
    try:
        for part in result.scenario.parts:
            _take_part(bench, part, result, progress)
    except KeyboardInterrupt:
        result.stopped = True
        raise
