"""The longest list of free chunks that one arena can have: how long its lock is held."""

from __future__ import annotations

from ..measure import measure_memory
from ..runs import Bench, Sample
from ..scenario import BASE, Column, Goal, Options, Panel, Part, Scenario, hold
from ..variants import Variant

SHAPES = (
    ("main", ()),
    ("main-random", ("--random",)),
    ("thread", ("--thread",)),
    ("thread-random", ("--thread", "--random")),
)


def _part(options: Options, name: str, shape: tuple[str, ...]) -> Part:
    count = 6554 if options.quick else 65536
    arguments = [*shape, "--count", str(count)]
    arena = "a thread's arena" if "--thread" in shape else "the main arena"
    order = "random order" if "--random" in shape else "address order"

    def sample(bench: Bench, variant: Variant) -> Sample:
        return measure_memory(bench, variant, "holes", arguments)

    return Part(
        name,
        f"{count:,} free chunks of 16 KB in {arena}, freed in {order}",
        sample,
        rounds=options.rounds(0.25),
        peer_rounds=options.rounds(0.05, least=1),
        columns=(
            Column("RSS after MB", "rss_after_mb", 0),
            Column("settled", "rss_settled_mb", 0),
            Column("after s", "settled_s"),
            Column("trimmed MB", "trimmed_mb", 0),
            Column("hold p50 us", "hold_p50_us", 0),
            Column("p99", "hold_p99_us", 0),
            Column("max", "hold_max_us", 0),
            Column("malloc_trim's hold", "trim_hold_us", 0),
            Column("clock's stop us", "longest_stop_us", 0),
        ),
        goals=(
            hold("longest hold, us", 2000, "hold_max_us", "longest_stop_us"),
            Goal("RSS settled / trimmed", 1.05, "rss_settled_mb", (BASE, "trimmed_mb")),
        ),
        row=name,
        control=True,
    )


def build(options: Options) -> Scenario:
    """Both kinds of arenas, both orders."""
    return Scenario(
        "holes",
        "65,536 free chunks of 16 KB, a live block behind each",
        tuple(_part(options, name, shape) for name, shape in SHAPES),
        (
            Panel("main arena: RSS settled, MB", "rss_settled_mb", "main"),
            Panel("a thread's arena: RSS settled, MB", "rss_settled_mb", "thread"),
        ),
    )
