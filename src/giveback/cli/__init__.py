"""The command line: one module a command.

Exit codes: 0 all is well; 1 it ran, and what it found is not well; 2 it could not run as asked;
130 Ctrl-C; 141 nobody reads the output.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path

import click

from .. import __version__
from ..errors import GivebackError

_MODULES = {
    "bench": "bench",
    "doctor": "doctor",
    "lib": "run",
    "run": "run",
    "stats": "stats",
    "trim": "trim",
}
"""The module of each command."""


class _Commands(click.Group):
    """Imports a command's module when it is asked for: `run` is in the way of a program's start."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULES:
            return None
        module = importlib.import_module(f".{_MODULES[cmd_name]}", __name__)
        command: click.Command = getattr(module, cmd_name)
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="giveback")
def cli() -> None:
    """Give the memory that Linux processes have freed but still occupy back to the system."""


def main() -> None:
    """Entry point: whatever goes wrong is one line on stderr and an exit code."""
    if sys.stdout is None:  # closed by whoever started us; programs that we start see it as it was
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115
    try:
        cli.main(prog_name="giveback", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "giveback"
        message = error.format_message().rstrip(".")
        click.echo(f"{command}: {message}; see '{command} --help'", err=True)
        sys.exit(2)
    except click.ClickException as error:
        click.echo(f"giveback: {error.format_message()}", err=True)
        sys.exit(2)
    except GivebackError as error:
        click.echo(f"giveback: {error}", err=True)
        sys.exit(2)
    except BrokenPipeError:  # who reads our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        click.echo(f"giveback: cannot write the output: {error.strerror}", err=True)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)


__all__ = ["cli", "main"]
