"""giveback doctor [PID]."""

from __future__ import annotations

import dataclasses
import json
import sys

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..doctor import Report, examine
from .types import process_id

_SIGNS = {"good": ("ok", "green"), "note": ("note", "yellow"), "bad": ("no", "bold red")}


def _print_lines(report: Report) -> None:
    """For pipes and logs: one finding a line, no padding."""
    for finding in report.findings:
        remedy = f" -> {finding.remedy}" if finding.remedy else ""
        sign = _SIGNS[finding.verdict][0]
        click.echo(f"{sign}\t{finding.subject}\t{finding.text}{remedy}")


def _print_table(console: Console, report: Report) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for finding in report.findings:
        sign, style = _SIGNS[finding.verdict]
        remedy = f"\n-> {finding.remedy}" if finding.remedy else ""
        table.add_row(Text(sign, style=style), finding.subject, Text(finding.text + remedy))
    console.print(table)


def _print(report: Report) -> None:
    console = Console(highlight=False)
    whose = "this Python" if report.is_self else report.command
    click.echo(f"giveback doctor: process {report.pid} ({whose})")
    if console.is_terminal:
        _print_table(console, report)
    else:
        _print_lines(report)
    if report.works:
        where = "here" if report.is_self else "inside that process"
        console.print(f"giveback works {where}: it can see what glibc holds.", style="green")
    else:
        console.print("Something will not work: see the lines marked 'no'.", style="red")


@click.command(short_help="Say what works for a process, and why not.")
@click.argument("pid", required=False, callback=process_id)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def doctor(pid: int | None, as_json: bool) -> None:
    """Say what works for the process PID (default: for Python programs here), and why not.

    Shows which libc and which layout of its heap was found and how that was verified, which
    allocator is really in use, and what the kernel offers; with a remedy for what is missing.
    Reading another process does not change or stop it.

    Exit code: 0 all works, 1 something does not, 2 there is no such process or it may not be read.
    """
    report = examine(pid)
    if as_json:
        data = dataclasses.asdict(report) | {"schema": 1, "works": report.works}
        click.echo(json.dumps(data, indent=2))
    else:
        _print(report)
    sys.stdout.flush()
    sys.exit(0 if report.works else 1)
