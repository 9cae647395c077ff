"""Many small blocks, freed little by little: how much comes back, and in how many calls."""

from __future__ import annotations

from ..measure import measure_memory
from ..runs import Bench, Sample
from ..scenario import BASE, RELEASES, Column, Goal, Options, Panel, Part, Scenario
from ..variants import Variant


def build(options: Options) -> Scenario:
    """One million blocks of 100 bytes. The program mostly sleeps: all rows run side by side."""
    seconds = "2" if options.quick else "10"
    arguments = ["--seconds", seconds]

    def sample(bench: Bench, variant: Variant) -> Sample:
        return measure_memory(bench, variant, "small_frees", arguments)

    part = Part(
        "",
        f"blocks of 100 bytes freed in random order over {seconds} s by 4 threads",
        sample,
        rounds=options.rounds(0.25),
        peer_rounds=options.rounds(0.25),
        columns=(
            Column("RSS after MB", "rss_after_mb", 1),
            Column("1 s", "rss_1s_mb", 1),
            Column("settled", "rss_settled_mb", 1),
            Column("trimmed", "trimmed_mb", 1),
            Column("returned MB", "returned_mb", 1),
            Column("calls/MB", "calls_per_mb"),
            Column("advised/returned", "advised_per_returned"),
            *RELEASES,
        ),
        goals=(
            Goal("RSS 1 s after / trimmed", 1.05, "rss_1s_mb", (BASE, "trimmed_mb")),
            # Not on old kernels: madvise takes one range, and runs of 280 KB are 3.6 a MB.
            Goal("release calls a returned MB", 2, "calls_per_mb", only_new_kernel=True),
            Goal("bytes advised / returned", 1.1, "advised_per_returned"),
        ),
        together=True,
    )
    return Scenario(
        "small-frees",
        "one million blocks of 100 bytes, freed in random order",
        (part,),
        (Panel("RSS settled, MB", "rss_settled_mb"),),
    )
