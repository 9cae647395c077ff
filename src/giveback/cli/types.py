"""Checks of arguments that commands share."""

from __future__ import annotations

import click


def process_id(_ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """A process id; whether there is such a process is for the command to find out."""
    if value is None:
        return None
    pid = int(value) if value.isascii() and value.isdigit() else 0
    if not 0 < pid < 2**31:
        raise click.BadParameter(
            f"{value!r} is not a process id: give a whole number, 1 or more", param=param
        )
    return pid
