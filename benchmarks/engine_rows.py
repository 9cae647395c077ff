"""The rows of the engine's bench: which workload, in which variants, and the goals.

Each row is a function that takes one sample of one variant, and goals over the samples. A goal
divides a figure of one variant by that of another, round by round, or takes a figure as it is.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable

from workload_runs import (
    Machine,
    RunError,
    Sample,
    Variant,
    engine_figures,
    measure,
    measure_clock,
    start,
)

SETTLE_SECONDS = 5.0
NOTICE_LIMIT_SECONDS = 5.0
POLL_SECONDS = 0.005
RUN_TIME_SECONDS = 4.0  # aimed at; facts ask for 3 s or more


@dataclasses.dataclass(frozen=True)
class Options:
    """What a run of the bench was asked for."""

    pairs: int
    quick: bool
    idle_seconds: float


@dataclasses.dataclass(frozen=True)
class Goal:
    """A bound, from above, on a figure or on a ratio of two."""

    text: str
    bound: float
    of: tuple[str, str]  # variant, figure
    to: tuple[str, str] | None = None
    noisy: bool = False  # needs an A/A within limits, and enough pairs
    stops: str | None = None  # wall time that a machine's stops lengthen: the figure of `clock`
    least: tuple[str, float] | None = None  # a figure of `to` that must be so large to decide


@dataclasses.dataclass(frozen=True)
class Column:
    """A figure that the table shows."""

    heading: str
    figure: str
    scale: float = 1
    digits: int = 2


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the goals: a workload, and how often it is run."""

    name: str
    title: str
    variants: tuple[str, ...]
    rounds: int
    sample: Callable[[Machine, Variant], Sample]
    columns: tuple[Column, ...]
    goals: tuple[Goal, ...]


BOTH = ("giveback", "giveback-old")
MEGABYTES = 1e-6
RELEASES = (
    Column("hold p50 us", "hold_p50_us", digits=0),
    Column("p99", "hold_p99_us", digits=0),
    Column("max", "hold_max_us", digits=0),
    Column("release CPU s", "engine_cpu_s", digits=3),
    Column("CPU s/GB", "release_s_per_gb", digits=3),
)
STOPS = (
    Column("clock: p99 of 100 us", "piece_p99_us", digits=0),
    Column("longest stop", "longest_stop_us", digits=0),
)


def both(text: str, bound: float, figure: str, to: tuple[str, str] | None = None) -> list[Goal]:
    """The same goal for both kernel paths."""
    return [Goal(f"{text} ({variant})", bound, (variant, figure), to) for variant in BOTH]


def holds(text: str, bound: float, figure: str, stops: str) -> list[Goal]:
    """A length of holds, in wall time, for both kernel paths."""
    return [Goal(f"{text} ({name})", bound, (name, figure), stops=stops) for name in BOTH]


def noisy(text: str, bound: float, figure: str, least: tuple[str, float] | None) -> list[Goal]:
    """A ratio of times to plain glibc's, for both kernel paths."""
    return [
        Goal(f"{text} ({name})", bound, (name, figure), ("glibc", figure), noisy=True, least=least)
        for name in BOTH
    ]


# ---- rfc --------------------------------------------------------------------------


def rfc(options: Options) -> Row:
    """The proposal's workload, as long as it is there."""
    volume = "2" if options.quick else "10"

    def sample(machine: Machine, variant: Variant) -> Sample:
        if variant.name == "clock":
            return measure_clock(machine)
        return measure(machine, variant, "rfc", ["--volume-gb", volume])

    return Row(
        "rfc",
        f"rfc: 16 threads, {volume} GB of short-lived blocks, 256 MB live",
        ("glibc", "glibc-again", "giveback", "giveback-old", "trim", "clock"),
        options.pairs,
        sample,
        (
            Column("run s", "run_s"),
            Column("CPU s", "cpu_s"),
            Column("RSS 0.2 s MB", "rss_200ms", MEGABYTES, 0),
            Column("1 s", "rss_1s", MEGABYTES, 0),
            Column("trimmed", "rss_trimmed", MEGABYTES, 0),
            *RELEASES,
            *STOPS,
        ),
        (
            *both("RSS 1 s after / trimmed", 1.03, "rss_1s", ("trim", "rss_trimmed")),
            *noisy("CPU / plain's", 1.06, "cpu_s", None),
            *both(
                "engine's CPU a byte / malloc_trim's",
                1.1,
                "release_s_per_gb",
                ("trim", "release_s_per_gb"),
            ),
            *holds("hold p99, us", 300, "hold_p99_us", "piece_p99_us"),
        ),
    )


def rfc_time(options: Options) -> Row:
    """The same, long enough to compare run times."""
    volumes: list[str] = []

    def volume(machine: Machine) -> str:
        """So much that plain glibc runs for RUN_TIME_SECONDS; found out once."""
        if not volumes:
            gigabytes, wanted = (4.0, 0.5) if options.quick else (40.0, RUN_TIME_SECONDS)
            for _ in range(2):  # the second time with a volume that start-up hardly shows in
                answer = measure(machine, Variant("glibc"), "rfc", ["--volume-gb", str(gigabytes)])
                gigabytes *= wanted / answer["run_s"]
            volumes.append(f"{max(gigabytes, 1):.0f}")
        return volumes[0]

    def sample(machine: Machine, variant: Variant) -> Sample:
        if variant.name == "clock":
            return measure_clock(machine)
        arguments = ["--volume-gb", volume(machine)]
        return measure(machine, variant, "rfc", arguments) | {"volume_gb": float(arguments[1])}

    long_enough = ("run_s", 3.0)
    return Row(
        "rfc-time",
        "rfc, long runs",
        ("glibc", "glibc-again", "giveback", "giveback-old", "clock"),
        options.pairs,
        sample,
        (
            Column("GB", "volume_gb", digits=0),
            Column("run s", "run_s"),
            Column("CPU s", "cpu_s"),
            Column("faults k", "minor_faults", 1e-3, 0),
            Column("RSS 1 s MB", "rss_1s", MEGABYTES, 0),
            *RELEASES,
            *STOPS,
        ),
        (
            *noisy("run time / plain's", 1.05, "run_s", long_enough),
            *noisy("CPU / plain's, long runs", 1.06, "cpu_s", long_enough),
            *holds("hold p99, us, long runs", 300, "hold_p99_us", "piece_p99_us"),
        ),
    )


# ---- holes ------------------------------------------------------------------------


def holes(options: Options, *shape: str) -> Row:
    """The longest list that one arena can have; with --quick a tenth of it."""
    arguments = [*shape, *(["--count", "6554"] if options.quick else [])]
    arena = "a thread's arena" if "--thread" in shape else "the main arena"
    order = "random order" if "--random" in shape else "address order"
    name = f"holes-{'thread' if '--thread' in shape else 'main'}"

    def sample(machine: Machine, variant: Variant) -> Sample:
        if variant.name == "clock":
            return measure_clock(machine)
        return measure(machine, variant, "holes", arguments)

    return Row(
        name + ("-random" if "--random" in shape else ""),
        f"{'6,554' if options.quick else '65,536'} free chunks of 16 KB in {arena}, "
        f"freed in {order}",
        ("giveback", "giveback-old", "trim", "clock"),
        max(2, options.pairs // 4),
        sample,
        (
            Column("settled s", "settled_s"),
            Column("RSS settled MB", "rss_settled", MEGABYTES, 0),
            Column("trimmed", "rss_trimmed", MEGABYTES, 0),
            *RELEASES,
            *STOPS,
        ),
        (
            *holds("longest hold, us", 2000, "hold_max_us", "longest_stop_us"),
            *both("RSS settled / trimmed", 1.05, "rss_settled", ("trim", "rss_trimmed")),
        ),
    )


# ---- small ------------------------------------------------------------------------


def small(options: Options, glibc: str | None) -> Row:
    """Blocks of 100 bytes, freed in random order; on this machine's glibc, or another."""
    seconds = "2" if options.quick else "10"

    def sample(machine: Machine, variant: Variant) -> Sample:
        return measure(machine, variant, "small", ["--seconds", seconds], glibc)

    return Row(
        f"small-{glibc or 'here'}",
        f"1 M blocks of 100 bytes freed in random order over {seconds} s, "
        f"{'this glibc' if glibc is None else f'glibc {glibc}'}",
        ("giveback", "giveback-old", "trim"),
        max(2, options.pairs // 4),
        sample,
        (
            Column("RSS 1 s MB", "rss_1s", MEGABYTES, 1),
            Column("trimmed", "rss_trimmed", MEGABYTES, 1),
            Column("returned MB", "returned", MEGABYTES, 1),
            Column("calls/MB", "calls_per_mb"),
            Column("advised/returned", "advised_per_returned"),
            *RELEASES,
        ),
        (
            *both("RSS 1 s after / trimmed", 1.05, "rss_1s", ("trim", "rss_trimmed")),
            # Not on the old path: madvise takes one range, and runs of 280 KB are 3.6 a MB.
            Goal("release calls a returned MB", 2, ("giveback", "calls_per_mb")),
            *both("bytes advised / returned", 1.1, "advised_per_returned"),
        ),
    )


# ---- idle -------------------------------------------------------------------------


def sample_idle(machine: Machine, variant: Variant, seconds: float) -> Sample:
    """A settled process for so many seconds, then a second spike.

    CPU and wake-ups are counted twice, by the engine and by the kernel; the larger one counts. How
    soon the spike is noticed is seen from outside: a process that polls itself is not idle.
    """
    arguments = ["--wait", "--seconds", "0", "--second-spike"]
    command, environment = machine.command(variant, "idle", arguments, None)
    with start(command, environment, seconds + 120) as running:
        sample = running.read()
        time.sleep(SETTLE_SECONDS)
        watched = variant.giveback is not None
        before = running.engine(variant) if watched else {}
        kernel_before, began = running.scheduled(), time.monotonic()
        time.sleep(seconds)
        kernel_after, took = running.scheduled(), time.monotonic() - began
        after = running.engine(variant) if watched else {}
        cpu_ns = kernel_after[0] - kernel_before[0]
        wakeups = kernel_after[1] - kernel_before[1]
        if watched:
            cpu_ns = max(cpu_ns, after["engine_cpu_ns"] - before["engine_cpu_ns"])
            wakeups = max(wakeups, after["wakeups"] - before["wakeups"])
        sample["idle_cpu_ms"] = cpu_ns / 1e6 * 60 / took
        sample["idle_wakeups"] = wakeups / took

        running.go_on()
        second = running.read()
        sample["noticed_s"] = wait_for_fall(running.resident, second)
        if watched:
            sample |= engine_figures(running.engine(variant))
        return sample | {"second": second} | running.end()


def wait_for_fall(resident: Callable[[], int], spike: Sample) -> float:
    """Seconds from the spike's last free until a tenth of it is left; the limit if it stays."""
    enough: float = spike["rss_before"] + (spike["rss_spike"] - spike["rss_before"]) / 10
    while True:
        passed: float = (time.monotonic_ns() - spike["freed_at_ns"]) / 1e9
        if passed >= NOTICE_LIMIT_SECONDS or resident() <= enough:
            return min(passed, NOTICE_LIMIT_SECONDS)
        time.sleep(POLL_SECONDS)


def idle(options: Options) -> Row:
    """What a process pays that has nothing to give back."""
    seconds = 3.0 if options.quick else options.idle_seconds

    def sample(machine: Machine, variant: Variant) -> Sample:
        return sample_idle(machine, variant, seconds)

    return Row(
        "idle",
        f"settled for {seconds:.0f} s, then a spike of 200 MB",
        ("glibc", "giveback", "giveback-old"),
        1 if options.quick else max(1, options.pairs // 10),
        sample,
        (
            Column("CPU ms in 60 s", "idle_cpu_ms"),
            Column("wake-ups/s", "idle_wakeups"),
            Column("spike gone after s", "noticed_s"),
        ),
        (
            *both("settled: CPU in 60 s, ms", 1, "idle_cpu_ms"),
            *both("settled: wake-ups a second", 1, "idle_wakeups"),
            *both("a spike is gone after, s", 1.5, "noticed_s"),
        ),
    )


# ---- tiny programs ----------------------------------------------------------------


def sample_true(machine: Machine, variant: Variant) -> Sample:
    """One start and end of /bin/true."""
    environment = machine.environment(variant)
    if variant.giveback is not None:
        environment["LD_PRELOAD"] = str(machine.library)
    began = time.perf_counter_ns()
    pid = os.posix_spawn("/bin/true", ["true"], environment)
    _, status, usage = os.wait4(pid, 0)
    wall = time.perf_counter_ns() - began
    if status != 0:
        raise RunError(f"/bin/true ended with {os.waitstatus_to_exitcode(status)}")
    return {"wall_us": wall / 1e3, "cpu_us": (usage.ru_utime + usage.ru_stime) * 1e6}


def tiny(options: Options) -> Row:
    """What a program pays that is over before there is anything to do."""
    return Row(
        "true",
        "/bin/true, started and ended",
        ("glibc", "glibc-again", "giveback"),
        100 if options.quick else 2000,
        sample_true,
        (Column("wall us", "wall_us", digits=0), Column("CPU us", "cpu_us", digits=0)),
        (
            Goal(
                "/bin/true / plain's",
                1.10,
                ("giveback", "wall_us"),
                ("glibc", "wall_us"),
                noisy=True,
            ),
        ),
    )


def all_rows(options: Options, glibcs: list[str]) -> list[Row]:
    """Every row, the cheap ones first."""
    return [
        tiny(options),
        rfc(options),
        rfc_time(options),
        *(holes(options, *shape) for shape in ((), ("--random",))),
        *(holes(options, "--thread", *shape) for shape in ((), ("--random",))),
        small(options, None),
        *(small(options, version) for version in glibcs),
        idle(options),
    ]
