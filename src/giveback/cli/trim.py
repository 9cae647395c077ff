"""giveback trim PID."""

from __future__ import annotations

import json
import sys

import click
import psutil

from ..errors import EngineError, ProcessError, UnsupportedError
from ..remote import engine, process
from .format import duration, size
from .types import Duration, process_id


def _rss(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error as error:
        raise ProcessError(f"process {pid} has ended") from error


@click.command(short_help="Have a process give back what it holds now.")
@click.argument("pid", callback=process_id)
@click.option(
    "--timeout",
    type=Duration(0.001, 86400.0),
    default=60.0,
    metavar="TIME",
    help="How long to wait for it.  [60s]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def trim(pid: int, timeout: float, as_json: bool) -> None:
    """Have the engine in the process PID release all that is held now, however young it is.

    It does so within its own pause budget, while the program goes on.

    Exit code: 0 something came back; 1 nothing was held, or the engine refuses, or it takes longer
    than the timeout (it goes on); 2 no engine runs there, there is no such process, or it may not
    be read.
    """
    try:
        command = process.status_fields(pid).get("Name", "?")
        before = _rss(pid)
        released = engine.release(pid, timeout)
        after = _rss(pid)
    except (EngineError, UnsupportedError) as error:
        click.echo(f"giveback trim: {error}", err=True)
        sys.exit(2 if isinstance(error, engine.NoEngineError) else 1)
    if as_json:
        data = {
            "schema": 1,
            "pid": pid,
            "command": command,
            "returned": released.bytes,
            "seconds": released.seconds,
            "rss_before": before,
            "rss_after": after,
        }
        click.echo(json.dumps(data, indent=2))
    else:
        took = duration(round(released.seconds * 1e9))
        click.echo(
            f"process {pid} ({command}): {size(released.bytes)} came back in {took}; "
            f"RSS {size(before)} -> {size(after)}"
        )
    if released.bytes == 0:
        sys.exit(1)
