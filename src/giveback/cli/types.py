"""Checks of arguments that commands share."""

from __future__ import annotations

import re
from typing import Any

import click

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}


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


class Duration(click.ParamType[float]):
    """A time with its unit, from `least` to `most` seconds; the value is in seconds."""

    name = "time"

    def __init__(self, least: float, most: float) -> None:
        self.least = least
        self.most = most

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds; a float is taken as it is (a default)."""
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s|min)", value, re.ASCII)
        seconds = float(match[1]) * _SECONDS[match[2]] if match else -1
        if not self.least <= seconds <= self.most:
            self.fail(
                f"{value!r} is not a time from {self.least:g}s to {self.most:g}s, "
                "with its unit (us, ms, s, min), as 500ms",
                param,
                ctx,
            )
        return seconds
