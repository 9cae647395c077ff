"""How soon gigabytes come back, and what a little churn in what is left of them costs then."""

from __future__ import annotations

import time

from ..measure import measure_memory
from ..runs import Bench, Running, Sample
from ..scenario import RELEASES, SELF, Column, Goal, Options, Panel, Part, Scenario
from ..variants import PLAIN, Variant

ENOUGH = 1.05
"""Memory is back when RSS is this near to what malloc_trim(0) leaves."""
LINEAR = 1.25
"""What a GB may take in the largest heap, to what it takes in one of half its size."""


class _Trimmed:
    """What plain glibc holds after malloc_trim(0) for a size of heap; found out once."""

    def __init__(self, arguments: list[str]) -> None:
        self._arguments = arguments
        self._bytes: float | None = None

    def bytes(self, bench: Bench) -> float:
        if self._bytes is None:
            plain = Variant(PLAIN, "")
            with bench.start(plain, "scale", [*self._arguments, "--trim"]) as running:
                for _ in range(2):
                    running.read()
                    running.go_on()
                self._bytes = float(running.read()["rss_trimmed"])
                running.end()
        return self._bytes


def _churn(running: Running) -> Sample:
    """What the churn takes: of the process's CPU, and of it the engine's."""
    before, cpu, began = running.stats(), running.cpu_s(), time.monotonic()
    running.go_on()
    running.read()
    took = time.monotonic() - began
    sample: Sample = {"churn_cpu_percent": (running.cpu_s() - cpu) / took * 100}
    after = running.stats()
    if before is not None and after is not None:
        used = after.engine_cpu_ns - before.engine_cpu_ns
        sample["churn_engine_percent"] = used / 1e9 / took * 100
        sample["churn_refaulted_mb"] = (after.refaulted - before.refaulted) / 1e6
    return sample


def _skip_churn(running: Running) -> Sample:
    running.go_on()
    running.read()
    return {}


COLUMNS = (
    Column("RSS after MB", "rss_after_mb", 0),
    Column("settled", "rss_settled_mb", 0),
    Column("after s", "settled_s"),
    Column("to trimmed s", "to_trimmed_s"),
    Column("trimmed MB", "trimmed_mb", 0),
    *RELEASES,
)
CHURN_COLUMNS = (
    Column("churn: CPU %", "churn_cpu_percent", 2),
    Column("engine's %", "churn_engine_percent", 2),
)


def _part(
    size: float, options: Options, *, churn_seconds: float = 0, linear_to: float | None = None
) -> Part:
    """`linear_to` is the smaller size that the time for each GB is compared with."""
    arguments = ["--gb", f"{size:g}"]
    trimmed = _Trimmed([*arguments])
    goals = [Goal("time to trimmed, s", 1 + 0.5 * size, "to_trimmed_s")]
    about = f"{size:g} GB in blocks of 1 to 32 KB, freed in random order"
    if churn_seconds:
        arguments += ["--churn-seconds", f"{churn_seconds:g}"]
        about += f", then 10 MB/s of churn for {churn_seconds:g} s"
        goals.append(Goal("engine's CPU in the churn, % of a core", 1, "churn_engine_percent"))
    if linear_to is not None:
        goals.append(
            Goal(
                f"time to trimmed a GB / with {linear_to:g} GB",
                LINEAR,
                "to_trimmed_s_per_gb",
                (SELF, "to_trimmed_s_per_gb"),
                to_part=_name(linear_to),
            )
        )

    def sample(bench: Bench, variant: Variant) -> Sample:
        taken = measure_memory(
            bench,
            variant,
            "scale",
            arguments,
            enough=trimmed.bytes(bench) * ENOUGH,
            then=_churn if churn_seconds else _skip_churn,
        )
        seconds = taken.pop("enough_s")
        return taken | {"to_trimmed_s": seconds, "to_trimmed_s_per_gb": seconds / size}

    return Part(
        _name(size),
        about,
        sample,
        rounds=options.rounds(0.25),
        peer_rounds=options.rounds(0.05, least=1),
        columns=COLUMNS + (CHURN_COLUMNS if churn_seconds else ()),
        goals=tuple(goals),
        row=_name(size),
    )


def _name(size: float) -> str:
    return f"{size:g} GB"


def build(options: Options) -> Scenario:
    """Three sizes; with --quick a tenth of them."""
    small, middle, large = (0.1, 0.2, 0.4) if options.quick else (1.0, 4.0, 8.0)
    return Scenario(
        "scale",
        f"{small:g}, {middle:g} and {large:g} GB, freed but for 1.6 %",
        (
            _part(small, options),
            _part(middle, options),
            _part(large, options, churn_seconds=2 if options.quick else 10, linear_to=middle),
        ),
        (
            Panel(f"{large:g} GB: RSS settled, MB", "rss_settled_mb", _name(large)),
            Panel("seconds to trimmed (60: never)", "to_trimmed_s", _name(large)),
        ),
    )
