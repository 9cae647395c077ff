"""The results as a picture: for each panel of the scenario, a bar for each row.

matplotlib is asked for here only; it comes with the extra `plot`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .document import figure_of
from .scenario import Panel, Result
from .variants import AGAIN, BenchError

_OURS = "#1b7f5c"
_PLAIN = "#8a8f98"
_PEER = "#c3c7cd"


def check() -> None:
    """BenchError if pictures cannot be drawn here; better known before a long run than after it."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise BenchError(
            "--plot needs matplotlib", "pip install 'giveback[plot]', or leave --plot out"
        ) from None


def _draw(axes: Any, result: Result, panel: Panel) -> None:
    names, medians, errors, colours = [], [], [], []
    for variant in result.variants:
        seen = figure_of(result, panel.row, variant.name, panel.figure)
        if seen is None:
            continue
        names.append(variant.name)
        medians.append(seen.median)
        errors.append((seen.median - seen.low, seen.high - seen.median))
        is_plain = variant.name in (variant.base, AGAIN)
        colours.append(_OURS if variant.engine is not None else _PLAIN if is_plain else _PEER)
    bars = axes.barh(
        names, medians, xerr=list(zip(*errors, strict=True)) or None, color=colours, ecolor="#444"
    )
    axes.bar_label(bars, fmt="{:,.3g}", padding=6, fontsize=8)
    axes.invert_yaxis()
    axes.set_title(panel.title, fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    if panel.logarithmic:
        axes.set_xscale("log")
    axes.margins(x=0.18)


def draw(path: Path, result: Result) -> None:
    """Writes the picture; the kind of file goes by its name. BenchError if that cannot be done."""
    check()
    from matplotlib.figure import Figure

    panels = result.scenario.panels
    rows = sum(not variant.missing for variant in result.variants)
    figure = Figure(figsize=(5.2 * len(panels), 1.2 + 0.26 * rows), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _draw(axes, result, panel)
    figure.suptitle(f"{result.scenario.name}: {result.scenario.about}", fontsize=11)
    try:
        figure.savefig(path, dpi=110)
    except (OSError, ValueError) as error:
        raise BenchError(f"--plot: {path} cannot be written: {error}") from None
