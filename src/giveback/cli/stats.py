"""giveback stats PID."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import click
import psutil
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from .. import prometheus
from ..engine_stats import Stats
from ..errors import EngineError, ProcessError
from ..remote import engine, process
from .format import duration, share, size
from .types import Duration, process_id

_LAST_SECONDS = 1.0
_STYLES = {"runs": "green", "refuses": "bold red", "none": "bold red"}


def _rows(stats: Stats) -> list[tuple[str, str]]:
    """What is shown, in order."""
    state: str = stats.state
    if stats.reason:
        state += f": {stats.reason}" + (f" -> {stats.remedy}" if stats.remedy else "")
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(stats.started_ns / 1e9))
    calls = f"{stats.release_calls} of {stats.kernel_path}, {stats.release_failures} refused"
    if stats.release_error:
        calls += f" (the last: {stats.release_error})"
    budgets = f"cpu {share(stats.cpu)}, pause {duration(stats.pause_ns)}, duty {share(stats.duty)}"
    rows = [
        ("engine", state),
        ("policy", f"{stats.policy}; {budgets}, age {duration(stats.age_ns)}"),
        ("started", started),
        ("passes", f"{stats.passes}, over {stats.arenas} arenas; {stats.wakeups} wake-ups"),
        ("returned", f"{size(stats.returned)}, {size(stats.returned_top)} of it from tops"),
        ("refaulted", size(stats.refaulted)),
        ("held", f"{size(stats.held)} when last looked at"),
        (
            "CPU",
            f"{duration(stats.engine_cpu_ns)}, {duration(stats.search_cpu_ns)} of it searching; "
            f"{stats.over_budget} passes cut short by the budget",
        ),
        (
            "holds",
            f"{stats.holds}; p50 {duration(stats.hold_p50_ns)}, p99 {duration(stats.hold_p99_ns)}, "
            f"max {duration(stats.hold_max_ns)}; {stats.holds_cut} cut short",
        ),
        ("skipped", f"{stats.busy} busy arenas, {stats.out_of_reach} lists too long"),
        ("release calls", calls),
    ]
    if stats.trims:
        trims = (
            f"{stats.trims}; {duration(stats.trim_ns)} in all, max {duration(stats.trim_max_ns)}"
        )
        rows.append(("malloc_trim", trims))
    rows += [("refused", f"{times} x {reason}") for reason, times in stats.refused.items()]
    return rows


def _table(pid: int, command: str, stats: Stats) -> Table:
    table = Table(
        title=f"giveback stats: process {pid} ({command})",
        title_justify="left",
        title_style="",
        box=None,
        show_header=False,
        pad_edge=False,
    )
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for name, text in _rows(stats):
        table.add_row(name, Text(text, style=_STYLES[stats.state] if name == "engine" else ""))
    return table


def _line(stats: Stats) -> str:
    """One moment of many, for pipes."""
    fields = (
        time.strftime("%H:%M:%S"),
        stats.state,
        f"returned {size(stats.returned)}",
        f"held {size(stats.held)}",
        f"refaulted {size(stats.refaulted)}",
        f"CPU {duration(stats.engine_cpu_ns)}",
        f"hold p99 {duration(stats.hold_p99_ns)}",
    )
    return "\t".join(fields)


def _json(pid: int, command: str, stats: Stats, indent: int | None) -> str:
    data: dict[str, Any] = {"schema": 1, "pid": pid, "command": command, "time": time.time()}
    return json.dumps(data | stats.to_dict(), indent=indent)


class _View:
    """Where figures go: a file, JSON, a terminal or a pipe."""

    def __init__(self, pid: int, as_json: bool, file: Path | None, watch: bool) -> None:
        self.pid = pid
        self.as_json = as_json
        self.file = file
        self.watch = watch
        self.console = Console(highlight=False)
        draws = watch and self.console.is_terminal and not as_json and not file
        self.live = Live(console=self.console, auto_refresh=False) if draws else None

    def show(self, stats: Stats) -> None:
        """Show one moment."""
        command = process.status_fields(self.pid).get("Name", "?")
        if self.file:
            text = prometheus.exposition(self.pid, command, stats)
            try:
                prometheus.write(self.file, text)
            except OSError as error:
                raise click.ClickException(f"cannot write {self.file}: {error.strerror}") from error
        elif self.as_json:
            click.echo(_json(self.pid, command, stats, None if self.watch else 2))
        elif self.live:
            self.live.update(_table(self.pid, command, stats), refresh=True)
        elif self.watch:
            click.echo(_line(stats))
        elif self.console.is_terminal:
            self.console.print(_table(self.pid, command, stats))
        else:
            for name, text in _rows(stats):
                click.echo(f"{name}\t{text}")
        sys.stdout.flush()

    def _next(self) -> Stats:
        try:
            return engine.read(self.pid)
        except engine.NoEngineError:
            # The page goes shortly before the process, which may be about to end.
            with contextlib.suppress(psutil.Error):
                psutil.Process(self.pid).wait(_LAST_SECONDS)
            return engine.read(self.pid)

    def loop(self, first: Stats, interval: float) -> None:
        """Show moments until the process or its engine is gone."""
        # As a service it is ended by this: the file has to go then, too.
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        if self.live:
            self.live.start()
        try:
            stats = first
            while True:
                self.show(stats)
                time.sleep(interval)
                stats = self._next()
        except ProcessError:
            return  # it has ended
        finally:
            if self.live:
                self.live.stop()
            if self.file:  # figures that do not change any more must not look alive
                self.file.unlink(missing_ok=True)


@click.command(short_help="Show what the engine in a process did.")
@click.argument("pid", callback=process_id)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--watch", is_flag=True, help="Show them again and again, until Ctrl-C.")
@click.option(
    "--interval",
    type=Duration(0.1, 3600.0),
    default=1.0,
    metavar="TIME",
    help="Time between two of them, with --watch.  [1s]",
)
@click.option(
    "--prometheus",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write them to FILE instead, for node_exporter's textfile collector.",
)
def stats(pid: int, as_json: bool, watch: bool, interval: float, file: Path | None) -> None:
    """Show what the engine in the process PID did: what came back, what it cost, what it refused.

    Neither changes nor stops the process. --json with --watch prints an object a line. The file of
    --prometheus is replaced at once, and removed when --watch ends.

    Exit code: 0, also when the watched process ended; 2 no engine runs there, there is no such
    process, or it may not be read; 130 Ctrl-C.
    """
    if as_json and file:
        raise click.UsageError("--json and --prometheus exclude each other")
    if file and file.suffix != ".prom":
        raise click.UsageError("the name of --prometheus must end in .prom, or nobody collects it")
    try:
        view = _View(pid, as_json, file, watch)
        first = engine.read(pid)
        if watch:
            view.loop(first, interval)
        else:
            view.show(first)
    except EngineError as error:
        click.echo(f"giveback stats: {error}", err=True)
        sys.exit(2)
