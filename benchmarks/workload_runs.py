"""One run of one workload in one variant, and everything that is measured on it.

A run is a real process: compiled from benchmarks/workloads, started with the variant's environment,
looked at from outside while it waits for the end of its standard input, and reaped with wait4,
so that its CPU time is all of it, teardown included.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import debian
import glibcs

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "benchmarks" / "workloads"
BUILD = ROOT / "build" / "bench"
RUN_SECONDS = 180

Sample = dict[str, Any]


class RunError(Exception):
    """A run that did not do what it should; the text says what it did."""


@dataclasses.dataclass(frozen=True)
class Variant:
    """How a workload is run. Whatever is not here is the same for all of them."""

    name: str
    giveback: str | None = None  # with the library, and this as GIVEBACK
    arguments: tuple[str, ...] = ()


OLD_KERNEL = "kernel=old"
VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("glibc"),
        Variant("glibc-again"),
        Variant("giveback", giveback=""),
        Variant("giveback-old", giveback=OLD_KERNEL),
        Variant("trim", arguments=("--trim",)),
        Variant("clock"),  # another program: the control of how long the machine stops a thread
    )
}


def engine_command() -> list[str]:
    """The giveback of this environment."""
    return [sys.executable, "-m", "giveback"]


def find_library() -> Path:
    """The path that `giveback lib` prints. RunError if it prints none."""
    done = subprocess.run(
        [*engine_command(), "lib"], capture_output=True, text=True, check=False, timeout=60
    )
    path = Path(done.stdout.strip() or "/")
    if done.returncode != 0 or not path.is_file():
        raise RunError(f"no library: {last_line(done.stderr or done.stdout)}")
    return path


def keep(library: Path) -> Path:
    """A copy to run with: an editable install may build the library anew meanwhile.

    It takes the place of an older one as a new file: another bench may have that mapped.
    """
    BUILD.mkdir(parents=True, exist_ok=True)
    copy = BUILD / library.name
    new = copy.with_suffix(f".{os.getpid()}")
    shutil.copy2(library, new)
    return new.replace(copy)


def last_line(text: str) -> str:
    """The last line of a program's output, which is where programs say what went wrong."""
    return (text.strip().splitlines() or ["no message"])[-1]


def build(name: str) -> Path:
    """A workload, compiled for this machine."""
    BUILD.mkdir(parents=True, exist_ok=True)
    program = BUILD / name
    sources = [SOURCES / f"{name}.c", SOURCES / "workload.c"]
    newest = max(path.stat().st_mtime for path in [*sources, SOURCES / "workload.h"])
    if not program.exists() or program.stat().st_mtime < newest:
        subprocess.run(
            ["cc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-g", "-Wall", "-Wextra", "-pthread"]
            + [*map(str, sources), "-o", str(program)],
            check=True,
        )
    return program


@dataclasses.dataclass(frozen=True)
class Machine:
    """What there is to run on: giveback's library, or why there is none."""

    library: Path | None
    reason: str

    def lacks(self, variant: Variant) -> str:
        """Why this variant cannot be run; empty if it can."""
        return self.reason if variant.giveback is not None and self.library is None else ""

    def environment(self, variant: Variant) -> dict[str, str]:
        """Ours, without what would change malloc, and with the variant's own."""
        ours = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("MALLOC_", "GIVEBACK", "LD_")) and name != "GLIBC_TUNABLES"
        }
        if variant.giveback is not None:
            ours["GIVEBACK"] = variant.giveback
        return ours

    def command(
        self, variant: Variant, name: str, arguments: list[str], glibc: str | None
    ) -> tuple[list[str], dict[str, str]]:
        """The command line and the environment of a run, on this machine's glibc or another."""
        environment = self.environment(variant)
        preloads = [] if variant.giveback is None or self.library is None else [str(self.library)]
        arguments = [*arguments, *variant.arguments]
        if glibc is None:
            if preloads:
                environment["LD_PRELOAD"] = preloads[0]
            return [str(build(name)), *arguments], environment
        sources = [SOURCES / f"{name}.c", SOURCES / "workload.c"]
        program = glibcs.build_for_all(sources, SOURCES, f"bench-{name}")
        command = glibcs.get(glibc).command(program, *arguments)
        at = command.index(str(program))
        command[at:at] = [part for path in preloads for part in ("--preload", path)]
        return command, environment


def available_glibc(version: str) -> str:
    """Why there is no such glibc to run on; empty if there is."""
    if version not in glibcs.SUITES:
        return f"unknown; there are {', '.join(glibcs.SUITES)}"
    try:
        glibcs.get(version)
    except debian.UnavailableError as error:
        return str(error)
    return ""


# ---- a running workload ---------------------------------------------------------


class Running:
    """A workload that was started, and is ended by the `with` around it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        """Of `start`."""
        self.process = process
        self.pid = process.pid

    def read(self) -> Sample:
        """The next JSON object that it prints."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.endswith("\n"):
            raise RunError(f"{shlex.join(self.command)} ended without an answer")
        answer: Sample = json.loads(line)
        return answer

    @property
    def command(self) -> list[str]:
        """Its command line."""
        arguments = self.process.args
        assert isinstance(arguments, list)
        return [str(argument) for argument in arguments]

    def go_on(self) -> None:
        """Ends its wait for a line."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def resident(self) -> int:
        """Resident bytes, from outside, cheap."""
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGESIZE")

    def memory(self) -> Sample:
        """Resident bytes exactly, and at their height."""
        rollup = _kilobytes(Path(f"/proc/{self.pid}/smaps_rollup"))
        return {
            "rss_exact": rollup.get("Rss", 0),
            "lazy_free": rollup.get("LazyFree", 0),
            "rss_peak": _kilobytes(Path(f"/proc/{self.pid}/status")).get("VmHWM", 0),
        }

    def scheduled(self) -> tuple[int, int]:
        """CPU time in nanoseconds, and how often a thread went to sleep, by the kernel's count."""
        cpu = switches = 0
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            cpu += int((task / "schedstat").read_text().split()[0])
            for line in (task / "status").read_text().splitlines():
                if line.startswith("voluntary_ctxt_switches:"):
                    switches += int(line.split()[1])
        return cpu, switches

    def engine(self, variant: Variant) -> Sample:
        """What `giveback stats` says of it. RunError if that is not the variant's engine."""
        done = subprocess.run(
            [*engine_command(), "stats", str(self.pid), "--json"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        try:
            answer: Sample = json.loads(done.stdout)
        except ValueError:
            raise RunError(f"giveback stats: {last_line(done.stderr or done.stdout)}") from None
        if answer["state"] != "runs":
            raise RunError(f"the engine does not run: {answer['state']}: {answer['reason']}")
        if variant.giveback == OLD_KERNEL and answer["kernel_path"] != "madvise":
            raise RunError(f"{OLD_KERNEL} was asked for, and {answer['kernel_path']} is used")
        return answer

    def end(self) -> Sample:
        """Lets it end, and reaps it: the CPU time of the whole process, in seconds."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        _, status, usage = os.wait4(self.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        if self.process.returncode != 0:
            code = self.process.returncode
            raise RunError(f"{shlex.join(self.command)} ended with {code}")
        return {"cpu_s": usage.ru_utime + usage.ru_stime}


def _kilobytes(path: Path) -> dict[str, int]:
    """The lines `Name: N kB` of a file of /proc, in bytes."""
    found = {}
    for line in path.read_text().splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[1] == "kB":
            found[name] = int(words[0]) * 1024
    return found


@contextlib.contextmanager
def start(
    command: list[str], environment: dict[str, str], seconds: float = RUN_SECONDS
) -> Iterator[Running]:
    """A workload, with its ends of two pipes; killed after so many seconds, or if we fail."""
    process = subprocess.Popen(
        command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        with process:
            try:
                yield Running(process)
            finally:
                if process.returncode is None:
                    process.kill()
    finally:
        timer.cancel()


# ---- figures ----------------------------------------------------------------------

# Our name, the key in the engine's statistics, and what to multiply by.
ENGINE_FIGURES = (
    ("engine_cpu_s", "engine_cpu_ns", 1e-9),
    ("hold_p50_us", "hold_p50_ns", 1e-3),
    ("hold_p99_us", "hold_p99_ns", 1e-3),
    ("hold_max_us", "hold_max_ns", 1e-3),
)
# The ratios of them that goals are about.
ENGINE_RATIOS = (
    ("calls_per_mb", "release_calls", 1e6),
    ("advised_per_returned", "advised", 1),
    ("release_s_per_gb", "engine_cpu_ns", 1),
)


def engine_figures(stats: Sample) -> Sample:
    """The engine's figures in our units, with ratios to the bytes that came back."""
    figures: Sample = {name: stats[key] * scale for name, key, scale in ENGINE_FIGURES}
    returned = figures["returned"] = stats["returned"]
    if returned > 0:
        figures |= {name: stats[key] * scale / returned for name, key, scale in ENGINE_RATIOS}
    return figures | {"stats": stats}


def trim_figures(answer: Sample) -> Sample:
    """The cost of malloc_trim(0) under the name of the engine's, where it was called."""
    if not answer.get("trim_returned"):
        return {}
    cost = answer["trim_cpu_s"] / answer["trim_returned"] * 1e9
    return {"release_s_per_gb": cost, "hold_max_us": answer["trim_wall_s"] * 1e6}


def measure_clock(machine: Machine) -> Sample:
    """How long a thread that only looks at the clock is stopped just now."""
    answer = measure(machine, VARIANTS["clock"], "clock", [])
    return {
        "longest_stop_us": answer["longest_stop_ns"] / 1e3,
        "piece_p99_us": answer["piece_p99_ns"] / 1e3,
    }


def measure(
    machine: Machine, variant: Variant, name: str, arguments: list[str], glibc: str | None = None
) -> Sample:
    """One run of a workload that prints one answer. RunError if it fails."""
    command, environment = machine.command(variant, name, ["--wait", *arguments], glibc)
    with start(command, environment) as running:
        sample = running.read()
        sample |= trim_figures(sample)
        sample |= running.memory()
        if variant.giveback is not None:
            sample |= engine_figures(running.engine(variant))
        return sample | running.end()
