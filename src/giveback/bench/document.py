"""A scenario's results as plain data: the JSON that `giveback bench --json` writes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from .decide import Decision
from .scenario import Part, Result, values
from .statistics import Estimate, estimate

SCHEMA = 1
FIGURES = (
    "run_s",
    "cpu_s",
    "rss_after_mb",
    "rss_settled_mb",
    "lazy_mb",
    "trimmed_mb",
    "hwm_mb",
    "minor_faults",
    "release_calls",
    "hold_p50_us",
    "hold_p99_us",
    "hold_max_us",
    "engine_cpu_s",
)
"""What every row has, whatever the scenario; null where it was not measured."""
_NOT_FIGURES = ("round", "error")


def row_labels(result: Result) -> list[str]:
    """The labels of the scenario's rows, in order."""
    return list(dict.fromkeys(part.row for part in result.scenario.parts))


def parts_of(result: Result, label: str) -> list[Part]:
    """The parts that share the rows of that label."""
    return [part for part in result.scenario.parts if part.row == label]


def figure_of(result: Result, label: str, variant: str, figure: str) -> Estimate | None:
    """A figure of a row, from the first part that has it."""
    for part in parts_of(result, label):
        seen = values(result.samples.get(part.name, {}).get(variant, ()), figure)
        if seen:
            return estimate(list(seen.values()))
    return None


def _figures(result: Result, label: str, variant: str) -> list[str]:
    """All that any sample of the row has, the common ones first."""
    found = dict.fromkeys(FIGURES)
    for part in parts_of(result, label):
        for sample in result.samples.get(part.name, {}).get(variant, ()):
            numbers = (name for name, value in sample.items() if isinstance(value, (int, float)))
            found |= dict.fromkeys(name for name in numbers if name not in _NOT_FIGURES)
    return list(found)


def _row(result: Result, label: str, variant: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"variant": variant.name, "part": label, "about": variant.about}
    row["missing"] = variant.missing or None
    for figure in _figures(result, label, variant.name):
        seen = figure_of(result, label, variant.name, figure)
        row[figure] = seen.median if seen else None
        row[f"{figure}_lo"] = seen.low if seen else None
        row[f"{figure}_hi"] = seen.high if seen else None
    return row


def document(
    result: Result, decisions: list[Decision], machine: dict[str, Any], run: dict[str, Any]
) -> dict[str, Any]:
    """One scenario. `run` says when and how it was run; samples are kept as they were taken."""
    rows = [
        _row(result, label, variant) for label in row_labels(result) for variant in result.variants
    ]
    return {
        "schema": SCHEMA,
        "scenario": result.scenario.name,
        "about": result.scenario.about,
        "machine": machine,
        "run": run,
        "complete": not result.stopped,
        "rows": rows,
        "goals": [decision.to_dict() for decision in decisions],
        "parts": [
            {
                "name": part.name,
                "about": part.about,
                "row": part.row,
                "samples": result.samples.get(part.name, {}),
            }
            for part in result.scenario.parts
        ],
    }


def write(path: Path, documents: list[dict[str, Any]]) -> None:
    """One scenario as an object, several as a list of them; a file is never half written."""
    text = json.dumps(documents[0] if len(documents) == 1 else documents, indent=1)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.write_text(text + "\n")
    new.replace(path)
