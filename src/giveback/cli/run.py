"""giveback run and giveback lib."""

from __future__ import annotations

import os
import signal
import sys

import click

from ..errors import GivebackError


@click.command(
    short_help="Run a program that gives back its memory.",
    context_settings={"allow_interspersed_args": False},
)
@click.option("--cpu", metavar="SHARE", help="CPU for searching, of one core.  [1%]")
@click.option("--pause", metavar="TIME", help="Longest wait for a lock because of it.  [100us]")
@click.option("--duty", metavar="SHARE", help="Share of time with a lock that others want.  [10%]")
@click.option("--age", metavar="TIME", help="How long memory must have stayed free.  [250ms]")
@click.option("--policy", metavar="background|trim|off", help="What it does.  [background]")
@click.option("--every", metavar="TIME", help="Policy trim: time between two trims.  [30s]")
@click.option("--kernel", metavar="new|old", help="old: do as on kernels before Linux 6.  [new]")
@click.option("--no-children", is_flag=True, help="Not in programs that this one starts.")
@click.argument(
    "command", metavar="-- CMD [ARG]...", nargs=-1, type=click.UNPROCESSED, required=True
)
def run(no_children: bool, command: tuple[str, ...], **options: str | None) -> None:
    """Run CMD with giveback's engine in it: memory that it frees goes back to the system.

    giveback replaces itself by the program, whose process id, exit code, signals, input and output
    are its own. Times are written as 100us, 250ms or 2s, shares as 1%. What is not given comes
    from the variable GIVEBACK (GIVEBACK=cpu=1%,age=250ms), else it is the default in brackets.

    Exit code: the program's own; 2 if it cannot be started with the engine in it.
    """
    # Reading ELF files is of no use to the other commands.
    from .. import launch

    given = {key: value for key, value in options.items() if value is not None}
    if no_children:
        given["children"] = "no"
    environment = launch.initial_environment()
    search = environment.get("PATH", os.defpath)
    try:
        text = launch.settings(environment.get("GIVEBACK", ""), given)
        program = launch.find_program(command[0], search)
        launch.check_program(program, search, exec_again=no_children)
        environment = launch.environment(environment, text)
        # Python ignores these two; the program would inherit that.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        # As it was typed: a script sees its own name.
        os.execve(command[0] if "/" in command[0] else program, command, environment)
    except GivebackError as error:
        click.echo(f"giveback run: {error}", err=True)
    except OSError as error:
        click.echo(f"giveback run: {command[0]} cannot be run: {error.strerror}", err=True)
    sys.exit(2)


@click.command(short_help="Print the path of the library to preload.")
def lib() -> None:
    """Print the path of giveback's library, for LD_PRELOAD in a service unit or a container.

    Exit code: 0; 2 if the library is missing, or LD_PRELOAD could not hold its path.
    """
    from .. import launch

    click.echo(launch.library())
