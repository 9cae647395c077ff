"""The questions that the bench asks, one a module, each with its `build`."""

from __future__ import annotations

from collections.abc import Callable

from ..scenario import Options, Scenario
from . import exec as tiny
from . import holes, idle, latency, rfc, scale, single, small_frees, steady

SCENARIOS: dict[str, Callable[[Options], Scenario]] = {
    "exec": tiny.build,
    "single": single.build,
    "rfc": rfc.build,
    "small-frees": small_frees.build,
    "holes": holes.build,
    "idle": idle.build,
    "latency": latency.build,
    "scale": scale.build,
    "steady": steady.build,
}
"""By name, in the order in which all of them are run."""
