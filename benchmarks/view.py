"""Measure the view of the heap: its exactness, its holds of a lock, its cost.

    python benchmarks/view.py [--pairs 20] [--json FILE]

Every figure is of a real program (tests/children/heap_child.c) on a real glibc. Runs of the
compared variants are interleaved in random order; intervals are bootstrap 95 % of the median. The
time to beat is glibc's own: mallinfo2 over the same heap, in the same run.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

import debian
import glibcs

from giveback.bench.statistics import interval

EXACT_SHAPES = (*glibcs.SHAPES, "holes")
PREDICT_TOLERANCE = 4096
HOLD_GOAL_NS = 300_000
CPU_GOAL_NS = 60_000_000
RUN_SECONDS = 120

Answer = dict[str, Any]


def ask(version: str, *arguments: str) -> Answer:
    """One run of the child."""
    command = glibcs.get(version).command(glibcs.child("heap_child"), *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.returncode}: {done.stdout}{done.stderr}")
    answer: Answer = json.loads(done.stdout)
    return answer


def difference_from_glibc(answer: Answer) -> int:
    """The largest difference of any figure from mallinfo's, bytes or counts."""
    arenas = answer["arenas"]

    def total(*names: str) -> int:
        return sum(int(arena[name]) for arena in arenas for name in names)

    ours = {
        "arena": total("system"),
        "ordblks": total("chunks") + len(arenas),
        "smblks": total("fast_chunks"),
        "fsmblks": total("fast"),
        "fordblks": total("bins", "fast", "top"),
        "keepcost": int(arenas[0]["top"]),
    }
    return max(abs(ours[name] - int(answer["glibc"][name])) for name in ours)


def measure_exactness(versions: list[str]) -> list[Answer]:
    """Rows 1 and 2 of the goals: against mallinfo, and against what malloc_trim releases."""
    rows = []
    work = [(version, shape) for version in versions for shape in EXACT_SHAPES]
    for version, shape in track(work, "exactness", transient=True):
        compared = ask(version, shape, "compare")
        predicted = ask(version, shape, "predict")
        drop = predicted["rss_before"] - predicted["rss_after"]
        rows.append(
            {
                "glibc": version,
                "shape": shape,
                "arenas": len(compared["arenas"]),
                "chunks": sum(a["chunks"] + a["fast_chunks"] for a in compared["arenas"]),
                "difference": difference_from_glibc(compared),
                "predicted": predicted["predicted"],
                "trimmed": drop,
                "error": abs(drop - predicted["predicted"]),
            }
        )
    return rows


COST_VARIANTS = {
    "ours": (),
    "ours-again": (),
    "one hold": ("10000000",),
}
COST_SHAPES = (
    "holes",
    "holes-thread",
    "holes-shuffled",
    "million",
    "million-sorted",
    "million-shuffled",
    "million-fast",
)


def measure_cost(versions: list[str], pairs: int) -> dict[tuple[str, str, str], list[Answer]]:
    """Rows 3 and 4: holds and CPU, beside mallinfo2 over the same heap."""
    samples: dict[tuple[str, str, str], list[Answer]] = defaultdict(list)
    work = [
        (version, shape, variant)
        for version in versions
        for shape in COST_SHAPES
        for variant in COST_VARIANTS
        for _ in range(pairs)
    ]
    random.shuffle(work)
    for version, shape, variant in track(work, "cost", transient=True):
        answer = ask(version, shape, "cost", *COST_VARIANTS[variant])
        samples[version, shape, variant].append(answer)
    return samples


def print_exactness(console: Console, rows: list[Answer]) -> bool:
    """The table of rows 1 and 2; whether the goals were met."""
    table = Table(title="exactness (bytes)")
    for heading in rows[0]:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            *(f"{value:,}" if isinstance(value, int) else value for value in row.values())
        )
    console.print(table)
    return all(row["difference"] == 0 and row["error"] <= PREDICT_TOLERANCE for row in rows)


def summarise(samples: dict[tuple[str, str, str], list[Answer]]) -> list[Answer]:
    """Medians and intervals of holds and CPU."""
    rows = []
    for (version, shape, variant), answers in sorted(samples.items()):
        holds = [max(arena["longest_hold_ns"] for arena in answer["arenas"]) for answer in answers]
        cpu = [answer["cpu_ns"] for answer in answers]
        ratio = [answer["cpu_ns"] / answer["mallinfo_ns"] for answer in answers]
        low, high = interval(ratio, statistics.median)
        cpu_low, cpu_high = interval(cpu, statistics.median)
        rows.append(
            {
                "glibc": version,
                "shape": shape,
                "variant": variant,
                "runs": len(answers),
                "hold_us_median": statistics.median(holds) / 1e3,
                "hold_us_max": max(holds) / 1e3,
                "cpu_ms": statistics.median(cpu) / 1e6,
                "cpu_ms_lo": cpu_low / 1e6,
                "cpu_ms_hi": cpu_high / 1e6,
                "mallinfo_ms": statistics.median(a["mallinfo_ns"] for a in answers) / 1e6,
                "ratio": statistics.median(ratio),
                "ratio_lo": low,
                "ratio_hi": high,
            }
        )
    return rows


def print_cost(console: Console, rows: list[Answer]) -> None:
    """The table of rows 3 and 4."""
    table = Table(title="cost of one look, and of one mallinfo2 over the same heap")
    for heading in ("glibc", "shape", "variant", "longest hold, us: median (max)", "CPU ms"):
        table.add_column(heading, justify="right")
    table.add_column("mallinfo2 ms, one hold", justify="right")
    table.add_column("CPU / mallinfo2's", justify="right")
    for row in rows:
        table.add_row(
            row["glibc"],
            row["shape"],
            row["variant"],
            f"{row['hold_us_median']:,.0f} ({row['hold_us_max']:,.0f})",
            f"{row['cpu_ms']:.1f} [{row['cpu_ms_lo']:.1f}, {row['cpu_ms_hi']:.1f}]",
            f"{row['mallinfo_ms']:.1f}",
            f"{row['ratio']:.2f} [{row['ratio_lo']:.2f}, {row['ratio_hi']:.2f}]",
        )
    console.print(table)


def verdict(goal: str, met: bool) -> str:
    """One line a goal."""
    return f"{'met   ' if met else 'MISSED'}  {goal}"


def main() -> int:
    """Measure, print, write; 1 if a goal was missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10, help="runs of each variant (default 10)")
    parser.add_argument("--json", type=Path, help="write all samples here")
    options = parser.parse_args()
    if options.pairs < 2:
        parser.error("--pairs must be 2 or more")
    console = Console(width=None if sys.stdout.isatty() else 160)

    versions = []
    for version in glibcs.SUITES:
        try:
            glibcs.get(version)
            versions.append(version)
        except debian.UnavailableError as error:
            console.print(f"SKIPPED glibc {version}: {error}")
    if not versions:
        console.print("no glibc to measure on")
        return 1
    exact = measure_exactness(versions)
    exact_met = print_exactness(console, exact)
    with_fastbins = [version for version in versions if version in ("2.36", "2.44")]
    cost = summarise(measure_cost(with_fastbins or versions[:1], options.pairs))
    print_cost(console, cost)

    ours = [row for row in cost if row["variant"] == "ours"]
    holes = [row for row in ours if row["shape"].startswith("holes")]
    million = [row for row in ours if row["shape"] in ("million", "million-sorted")]
    scattered = [row for row in ours if row["shape"] in ("million-shuffled", "million-fast")]
    verdicts = [
        (f"difference 0 from mallinfo, predicted release within {PREDICT_TOLERANCE}", exact_met),
        (
            "65,536 free chunks: median of the longest hold <= 300 us",
            all(row["hold_us_median"] * 1e3 <= HOLD_GOAL_NS for row in holes),
        ),
        (
            "1 M free chunks freed in order: CPU <= 60 ms",
            all(row["cpu_ms_hi"] * 1e6 <= CPU_GOAL_NS for row in million),
        ),
        (
            "1 M free chunks freed in random order: CPU <= 60 ms",
            all(row["cpu_ms_hi"] * 1e6 <= CPU_GOAL_NS for row in scattered),
        ),
    ]
    for goal, met in verdicts:
        console.print(verdict(goal, met))
    if options.json:
        document = {
            "schema": 1,
            "machine": platform.uname()._asdict() | {"node": ""},
            "exactness": exact,
            "cost": cost,
            "goals": dict(verdicts),
        }
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    return 0 if all(met for _, met in verdicts) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
