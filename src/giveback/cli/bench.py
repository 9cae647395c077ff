"""giveback bench SCENARIO..."""

from __future__ import annotations

import dataclasses
import datetime
import sys
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from ..bench import document, harness, machine, plot, table
from ..bench.decide import Decision, decide
from ..bench.runs import Bench
from ..bench.scenario import Options, Result
from ..bench.scenarios import SCENARIOS
from ..bench.statistics import PAIRS, Verdict
from ..bench.variants import PEER_NAMES, Variant, all_variants

ALL = "all"
_QUICK_PAIRS = 2
_LINE_SECONDS = 30.0
"""Between two lines of progress where nobody watches a terminal."""


class _Lines:
    """Progress for logs: now and then a line on stderr."""

    def __init__(self) -> None:
        self._text, self._runs, self._done, self._next = "", 0, 0, 0.0

    def begin(self, text: str, runs: int) -> None:
        self._text, self._runs, self._done, self._next = text, runs, 0, 0.0

    def advance(self, text: str) -> None:
        if time.monotonic() >= self._next:
            click.echo(f"{self._text}: {self._done} of {self._runs} runs done; {text}", err=True)
            self._next = time.monotonic() + _LINE_SECONDS
        self._done += 1


class _Bar:
    """Progress on a terminal."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._task = bars.add_task("", total=None, now="")
        self._done = 0

    def begin(self, text: str, runs: int) -> None:
        self._done = 0
        self._bars.reset(self._task, description=text, total=runs, now="")

    def advance(self, text: str) -> None:
        self._bars.update(self._task, completed=self._done, now=text)
        self._done += 1


def _pairs(values: tuple[str, ...], option: str) -> dict[str, Path]:
    """NAME=PATH, each of them there."""
    found: dict[str, Path] = {}
    for value in values:
        name, equals, path = value.partition("=")
        if not name or not equals or not path:
            raise click.UsageError(f"{option}: {value!r} is not of the form NAME=PATH")
        if not Path(path).exists():
            raise click.UsageError(f"{option} {name}: there is no {path}")
        found[name] = Path(path).resolve()
    return found


def _chosen(names: tuple[str, ...]) -> list[str]:
    for name in names:
        if name != ALL and name not in SCENARIOS:
            known = ", ".join((*SCENARIOS, ALL))
            raise click.UsageError(f"there is no scenario {name!r}: there are {known}")
    return list(SCENARIOS) if ALL in names else list(dict.fromkeys(names))


def _check_writable(path: Path | None, option: str) -> None:
    """Better known before a long run than after it."""
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise click.UsageError(f"{option}: {path} is not a file in a folder that exists")


@dataclasses.dataclass
class _Session:
    """What was measured so far, and where it goes."""

    bench: Bench
    options: Options
    variants: list[Variant]
    json_path: Path | None
    plot_path: Path | None
    several: bool
    console: Console
    description: dict[str, Any] = dataclasses.field(default_factory=machine.describe)
    documents: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    decisions: list[Decision] = dataclasses.field(default_factory=list)

    def run(self, name: str, progress: harness.Progress) -> None:
        """One scenario; what there is of it is shown and kept also after Ctrl-C."""
        result = Result(SCENARIOS[name](self.options), self.variants, {})
        began = datetime.datetime.now(datetime.UTC)
        steal = machine.Steal()
        try:
            harness.take(self.bench, result, progress)
        finally:
            if any(result.samples.values()):
                self._keep(result, began, steal)

    def _keep(self, result: Result, began: datetime.datetime, steal: machine.Steal) -> None:
        decisions = decide(result)
        self.decisions += decisions
        run = {
            "date": began.isoformat(timespec="seconds"),
            "seconds": round((datetime.datetime.now(datetime.UTC) - began).total_seconds(), 1),
            "steal": round(steal.share(), 4),
            "settings": self.bench.settings,
            **dataclasses.asdict(self.options),
        }
        self.documents.append(document.document(result, decisions, self.description, run))
        if self.json_path:
            document.write(self.json_path, self.documents)
        table.show(self.console, result, decisions)
        if self.plot_path:
            path = self.plot_path
            if self.several:
                path = path.with_stem(f"{path.stem}-{result.scenario.name}")
            plot.draw(path, result)

    def run_all(self, names: list[str]) -> None:
        """Each, with progress on stderr."""
        errors = Console(stderr=True)
        if not errors.is_terminal:
            for name in names:
                self.run(name, _Lines())
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[now]}"),
        )
        for name in names:
            with Bars(*columns, console=errors, transient=True) as bars:
                self.run(name, _Bar(bars))


def _epilogue() -> str:
    lines = [
        f"  {name:<12} {build(Options(PAIRS, quick=False)).about}"
        for name, build in SCENARIOS.items()
    ]
    return "\n".join(("\b", "Scenarios:", *lines, f"  {ALL:<12} each of them: about an hour"))


@click.command(short_help="Measure giveback against plain glibc and other allocators.")
@click.argument("scenarios", metavar="SCENARIO...", nargs=-1, required=True)
@click.option(
    "--json", "json_path", type=click.Path(path_type=Path), help="Write all samples here."
)
@click.option("--plot", "plot_path", type=click.Path(path_type=Path), help="Draw a picture here.")
@click.option(
    "--pairs",
    type=click.IntRange(2, 1000),
    help=f"Rounds in which times are compared.  [{PAIRS}; quick: {_QUICK_PAIRS}]",
)
@click.option(
    "--peers",
    metavar="A,B",
    help=f"Only these rows besides glibc and giveback: {', '.join(PEER_NAMES)}.",
)
@click.option(
    "--library",
    "libraries",
    metavar="NAME=FILE",
    multiple=True,
    help="The library of jemalloc, mimalloc or tcmalloc, or of a new row of that name.",
)
@click.option(
    "--libc",
    "libcs",
    metavar="NAME=DIR",
    multiple=True,
    help="Two more rows: on the glibc whose libc.so.6 and ld-linux*.so are in DIR.",
)
@click.option(
    "--kernel", type=click.Choice(["old"]), help="One more row: giveback as on older kernels."
)
@click.option("--settings", metavar="TEXT", default="", help="GIVEBACK of the rows under giveback.")
@click.option("--quick", is_flag=True, help="Seconds a scenario, to try it; decides nothing.")
def bench(
    scenarios: tuple[str, ...],
    json_path: Path | None,
    plot_path: Path | None,
    pairs: int | None,
    peers: str | None,
    libraries: tuple[str, ...],
    libcs: tuple[str, ...],
    kernel: str | None,
    settings: str,
    quick: bool,
) -> None:
    """Run real programs on plain glibc, under giveback and on other allocators, and compare them.

    The rows of a round run in random order, beside plain glibc a second time: what that differs
    by is noise. Figures are medians with bootstrap 95 % intervals. What is not installed is named,
    and left out. Nothing else should run on the machine meanwhile. With Ctrl-C what was measured
    so far is shown, and written.

    Exit code: 0 no goal was missed, 1 one was, 2 it cannot be run as asked, 130 Ctrl-C.
    """
    names = _chosen(scenarios)
    for path, option in ((json_path, "--json"), (plot_path, "--plot")):
        _check_writable(path, option)
    if plot_path:
        plot.check()
    options = Options(pairs or (_QUICK_PAIRS if quick else PAIRS), quick)
    with Bench(settings, quick=quick) as shared:
        variants = all_variants(
            settings=settings,
            old_kernel=kernel == "old",
            peers=None if peers is None else [name for name in peers.split(",") if name],
            libraries=_pairs(libraries, "--library"),
            libcs=_pairs(libcs, "--libc"),
            trim_timer=shared.trim_timer,
        )
        console = Console(width=None if sys.stdout.isatty() else 240)
        session = _Session(shared, options, variants, json_path, plot_path, len(names) > 1, console)
        try:
            session.run_all(names)
        finally:
            table.show_sum(console, session.decisions, quick=quick)
    sys.stdout.flush()
    missed = any(decision.verdict is Verdict.MISSED for decision in session.decisions)
    sys.exit(1 if missed else 0)


bench.epilog = _epilogue()
