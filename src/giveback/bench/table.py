"""The results on a terminal: a table a part, the verdicts, and what could not be run."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .decide import Decision, compare
from .scenario import CONTROL, Column, Part, Result, Samples
from .statistics import Estimate, Verdict
from .variants import Variant

_STYLES = {Verdict.MET: "green", Verdict.MISSED: "bold red"}


def show_estimate(seen: Estimate | None, digits: int) -> str:
    """`median [low, high]`, or a dash."""
    if seen is None:
        return "-"
    median, low, high = (f"{value:,.{digits}f}" for value in (seen.median, seen.low, seen.high))
    return median if low == high else f"{median} [{low}, {high}]"


def _cell(samples: Samples, variant: str, column: Column) -> str:
    """A figure; of the longest hold also the largest of all runs."""
    seen = compare(samples, (variant, column.figure))
    text = show_estimate(seen, column.digits)
    if seen and column.figure == "hold_max_us" and seen.largest > seen.high:
        text += f" max {seen.largest:,.0f}"
    return text


def _remark(part: Part, samples: Samples, variant: Variant) -> str:
    """Why a row has no figures, or some only; empty if it has all."""
    if variant.missing:
        return f"{variant.name}: not available: {variant.missing}"
    taken = samples.get(variant.name, [])
    errors = [sample["error"] for sample in taken if "error" in sample]
    if errors:
        return f"{variant.name}: FAILED {len(errors)} of {len(taken)} times: {errors[0]}"
    return ""


def _show_part(console: Console, result: Result, part: Part) -> None:
    samples = result.samples.get(part.name)
    if samples is None:
        return
    title = f"{result.scenario.name} {part.name}".strip()
    console.print(f"{title}: {part.about}", style="bold", highlight=False)
    table = Table(box=None, pad_edge=False)
    table.add_column("row", no_wrap=True)
    table.add_column("runs", justify="right")
    for column in part.columns:
        table.add_column(column.heading, justify="right", no_wrap=True)
    remarks = []
    names = [(variant.name, part.rounds_of(variant) > 0) for variant in result.variants]
    for name, runs in [*names, (CONTROL, part.control)]:
        cells = [_cell(samples, name, column) for column in part.columns]
        count = len({s["round"] for s in samples.get(name, []) if "error" not in s})
        if runs and count:
            table.add_row(name, str(count), *cells)
    for variant in result.variants:
        if part.rounds_of(variant) and (remark := _remark(part, samples, variant)):
            remarks.append(remark)
    console.print(table)
    for remark in remarks:
        console.print(escape(remark), style="yellow", highlight=False)


def show_decision(decision: Decision) -> str:
    """One line a goal."""
    digits = 0 if decision.bound >= 100 else 3
    where = " ".join(filter(None, (decision.part, decision.variant)))
    line = f"{where}: {decision.goal}: {show_estimate(decision.seen, digits)}"
    line += f" <= {decision.bound:g}"
    if decision.same:
        line += f"; A/A {show_estimate(decision.same, 3)}"
    return line + (f" ({decision.why})" if decision.why else "")


def show(console: Console, result: Result, decisions: list[Decision]) -> None:
    """All of a scenario."""
    for part in result.scenario.parts:
        _show_part(console, result, part)
    for decision in decisions:
        style = _STYLES.get(decision.verdict, "yellow")
        console.print(f"{decision.verdict.value:<11}", style=style, end=" ", highlight=False)
        console.print(escape(show_decision(decision)), highlight=False)
    console.print()


def show_sum(console: Console, decisions: list[Decision], *, quick: bool) -> None:
    """How many goals were met, and not."""
    counts = dict.fromkeys(Verdict, 0)
    for decision in decisions:
        counts[decision.verdict] += 1
    text = ", ".join(f"{count} {verdict.value}" for verdict, count in counts.items() if count)
    console.print(f"goals: {text or 'none'}", highlight=False)
    if quick:
        console.print("a quick run: its figures decide nothing", highlight=False)
