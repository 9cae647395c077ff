"""Measure the engine: what comes back, how soon, and what it costs the program.

    python benchmarks/engine.py [--pairs 20] [--rows rfc,holes] [--quick] [--json FILE]

Every figure is of real programs (benchmarks/workloads) that know nothing of giveback. Each round
runs all variants of a row once, in random order; ratios are taken within a round; intervals are
bootstrap 95 % of the median. What cannot be run here is a row that says so.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import random
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

from engine_rows import Column, Goal, Options, Row, all_rows
from statistics_of_runs import PAIRS, Estimate, Verdict, estimate, judge, judge_noisy, judge_stopped
from workload_runs import (
    VARIANTS,
    Machine,
    RunError,
    Sample,
    available_glibc,
    find_library,
    keep,
    measure,
)

Samples = dict[str, list[Sample]]
AGAIN = "glibc-again"


def warm_up(machine: Machine) -> None:
    """Touches more memory than most rows do: a virtual machine's first use of it is slow."""
    measure(machine, VARIANTS["glibc"], "rfc", ["--volume-gb", "2"])


def take_samples(machine: Machine, row: Row) -> Samples:
    """All rounds of a row; a run that failed is a sample with nothing but `error`."""
    warm_up(machine)
    able = [VARIANTS[name] for name in row.variants if not machine.lacks(VARIANTS[name])]
    samples: Samples = {variant.name: [] for variant in able}
    for _ in track(range(row.rounds), row.name, transient=True, disable=not sys.stdout.isatty()):
        random.shuffle(able)
        for variant in able:
            try:
                sample = row.sample(machine, variant)
            except RunError as error:
                sample = {"error": str(error)}
            samples[variant.name].append(sample)
    return samples


def figures(samples: Samples, of: tuple[str, str]) -> list[float | None]:
    """One figure of one variant, round by round."""
    variant, figure = of
    return [sample.get(figure) for sample in samples.get(variant, [])]


def ratios(samples: Samples, of: tuple[str, str], to: tuple[str, str] | None) -> Estimate | None:
    """A figure, or its ratio to another one of the same round."""
    above = figures(samples, of)
    below: list[float | None] = [1.0] * len(above) if to is None else figures(samples, to)
    return estimate([a / b for a, b in zip(above, below, strict=False) if a is not None and b])


def decide(machine: Machine, samples: Samples, goal: Goal) -> dict[str, Any]:
    """The verdict on a goal, with what it rests on."""
    seen = ratios(samples, goal.of, goal.to)
    names = [goal.of[0], *([goal.to[0]] if goal.to else [])]
    errors = [s["error"] for name in names for s in samples.get(name, []) if "error" in s]
    same = ratios(samples, (AGAIN, goal.to[1]), goal.to) if goal.noisy and goal.to else None
    if errors:
        verdict, why = Verdict.MISSED, f"{len(errors)} runs failed: {errors[0]}"
    elif seen is None:
        lacking = [why for name in names if (why := machine.lacks(VARIANTS[name]))]
        verdict, why = Verdict.NOT_MEASURED, lacking[0] if lacking else "no such figure"
    elif goal.stops:
        verdict, why = judge_stopped(seen, goal.bound, ratios(samples, ("clock", goal.stops), None))
    elif goal.noisy:
        verdict, why = judge_noisy(seen, goal.bound, same)
    else:
        verdict, why = judge(seen, goal.bound)
    if verdict is Verdict.MET and goal.least and goal.to:
        reached = ratios(samples, (goal.to[0], goal.least[0]), None)
        if reached is None or reached.median < goal.least[1]:
            verdict = Verdict.CANNOT_TELL
            why = f"{goal.least[0]} of {goal.to[0]} is below {goal.least[1]}"
    return {
        "goal": goal.text,
        "bound": goal.bound,
        "seen": dataclasses.asdict(seen) if seen else None,
        "same": dataclasses.asdict(same) if same else None,
        "verdict": verdict.value,
        "why": why,
    }


def show_estimate(seen: Estimate | None, scale: float, digits: int) -> str:
    """`median [low, high]`, or a dash."""
    if seen is None:
        return "-"
    median, low, high = (
        f"{value * scale:,.{digits}f}" for value in (seen.median, seen.low, seen.high)
    )
    return median if low == high else f"{median} [{low}, {high}]"


def show_figure(samples: Samples, variant: str, column: Column) -> str:
    """A cell; of the longest hold also the largest of all runs."""
    seen = ratios(samples, (variant, column.figure), None)
    text = show_estimate(seen, column.scale, column.digits)
    if seen and column.figure == "hold_max_us" and seen.largest > seen.high:
        text += f" max {seen.largest:,.0f}"
    return text


def show_row(console: Console, machine: Machine, row: Row, samples: Samples) -> None:
    """The table of a row: a line a variant."""
    table = Table(title=f"{row.name}: {row.title}, {row.rounds} rounds", title_justify="left")
    table.add_column("variant")
    for column in row.columns:
        table.add_column(column.heading, justify="right")
    remarks = []
    for name in row.variants:
        lacking = machine.lacks(VARIANTS[name])
        if lacking:
            remarks.append(f"{name}: not available: {lacking}")
            continue
        table.add_row(name, *(show_figure(samples, name, column) for column in row.columns))
        errors = [sample["error"] for sample in samples[name] if "error" in sample]
        remarks += [f"{name}: FAILED {len(errors)} times: {error}" for error in errors[:1]]
    console.print(table)
    for remark in remarks:
        console.print(escape(remark), style="yellow", highlight=False)


def show_decision(console: Console, decision: dict[str, Any]) -> None:
    """One line a goal."""
    seen = Estimate(**decision["seen"]) if decision["seen"] else None
    digits = 0 if decision["bound"] >= 100 else 3
    line = f"{decision['verdict']:<11} {decision['goal']}: {show_estimate(seen, 1, digits)}"
    line += f" <= {decision['bound']:g}"
    if decision["same"]:
        line += f"; A/A {show_estimate(Estimate(**decision['same']), 1, 3)}"
    # Why something is not there stands under the table.
    if decision["why"] and decision["verdict"] != Verdict.NOT_MEASURED.value:
        line += f" ({decision['why']})"
    console.print(escape(line), highlight=False)


def read_options() -> tuple[argparse.Namespace, Options]:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--pairs", type=int, help=f"rounds of the rows that compare times (default {PAIRS})"
    )
    parser.add_argument("--rows", help="only these, by name or first part of it: rfc,holes")
    parser.add_argument("--quick", action="store_true", help="seconds a row; decides nothing")
    parser.add_argument("--json", type=Path, help="write all samples here")
    parser.add_argument(
        "--glibc", action="append", default=[], help="row `small` also on this one, such as 2.44"
    )
    parser.add_argument("--idle-seconds", type=float, default=60, help="of row `idle` (default 60)")
    parser.add_argument("--library", type=Path, help="not the one that `giveback lib` prints")
    given = parser.parse_args()
    pairs = given.pairs if given.pairs is not None else 3 if given.quick else PAIRS
    if pairs < 2:
        parser.error("--pairs must be 2 or more")
    if given.library and not given.library.is_file():
        parser.error(f"--library: there is no {given.library}")
    return given, Options(pairs, given.quick, given.idle_seconds)


def select(rows: list[Row], names: str | None) -> list[Row]:
    """The rows that were asked for: the one of that name, or all whose name begins with it."""
    if names is None:
        return rows
    chosen = []
    for name in names.split(","):
        exactly = [row for row in rows if row.name == name]
        found = exactly or [row for row in rows if row.name.startswith(f"{name}-")]
        if not found:
            known = ", ".join(row.name for row in rows)
            raise SystemExit(f"--rows: there is no {name}; there are {known}")
        chosen += [row for row in found if row not in chosen]
    return chosen


def find_machine(library: Path | None) -> Machine:
    """With the library, or the reason why there is none."""
    try:
        return Machine(keep((library or find_library()).resolve()), "")
    except RunError as error:
        return Machine(None, str(error))


def main() -> int:
    """Measure, print, write; 1 if a goal was missed."""
    given, options = read_options()
    console = Console(width=None if sys.stdout.isatty() else 240)
    machine = find_machine(given.library)
    versions = []
    for version in given.glibc:
        reason = available_glibc(version)
        if reason:
            console.print(escape(f"SKIPPED small-{version}: {reason}"))
        else:
            versions.append(version)

    document: dict[str, Any] = {
        "schema": 1,
        "machine": platform.uname()._asdict() | {"node": "", "libc": platform.libc_ver()[1]},
        "options": dataclasses.asdict(options),
        "rows": [],
    }
    decisions: list[dict[str, Any]] = []
    for row in select(all_rows(options, versions), given.rows):
        samples = take_samples(machine, row)
        show_row(console, machine, row, samples)
        decided = [decide(machine, samples, goal) for goal in row.goals]
        for decision in decided:
            show_decision(console, decision)
        console.print()
        decisions += decided
        document["rows"].append(
            {"row": row.name, "title": row.title, "samples": samples, "goals": decided}
        )
        if given.json:  # after each row: a long run that is stopped has not been for nothing
            given.json.write_text(json.dumps(document, indent=1) + "\n")
    counts = dict.fromkeys(Verdict, 0)
    for decision in decisions:
        counts[Verdict(decision["verdict"])] += 1
    console.print(", ".join(f"{count} {verdict.value}" for verdict, count in counts.items()))
    if options.quick:
        console.print("a quick run: its figures decide nothing")
    return 1 if counts[Verdict.MISSED] else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
