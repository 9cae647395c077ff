"""Argument types that commands share."""

from __future__ import annotations

import click


class ProcessId(click.ParamType):
    """A process id; whether there is such a process is for the command to find out."""

    name = "pid"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """The id as a number."""
        try:
            pid = int(value)
        except ValueError:
            pid = 0
        if not 0 < pid < 2**31:
            self.fail(f"{value!r} is not a process id: give a whole number, 1 or more", param, ctx)
        return pid
