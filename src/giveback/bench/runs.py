"""One run of one program in one variant, and what can be seen of it from outside.

A run is a real process: a program of ours that knows nothing of giveback, started with the
variant's environment, watched through /proc while it waits for a line on its standard input, and
reaped with wait4, so that its CPU time is all of it, its end included.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .. import _native, launch
from ..engine import library_path
from ..engine_stats import Stats
from ..errors import GivebackError
from ..remote import engine
from .variants import OLD_KERNEL, BenchError, Variant

RUN_SECONDS = 300.0
_SCHEDULER_CLOCK = 2  # CPUCLOCK_SCHED: a process's CPU clock, to the nanosecond

Sample = dict[str, Any]


class RunError(BenchError):
    """A run that did not do what it should; the text says what it did."""


def programs_folder() -> Path:
    """Where the bench's programs were installed. BenchError if they were not."""
    folder = Path(_native.__file__).parent / "bench" / "programs"
    if not (folder / "rfc").is_file():
        raise BenchError("the bench's programs are not installed", "install giveback anew")
    return folder


class Bench:
    """What all runs share: the programs, the library, and the processes that run just now.

    `settings` is checked here: ConfigError if it is not one that giveback knows. Close it, or use
    it in a `with`: the copy of the library goes then. Thread-safe.
    """

    def __init__(self, settings: str = "", *, quick: bool = False) -> None:
        launch.settings(settings, {})
        self.settings = settings
        self.quick = quick
        self.programs = programs_folder()
        self.trim_timer = self.programs / "trim_timer.so"
        self._folder = tempfile.TemporaryDirectory(prefix="giveback-bench-")
        library = Path(library_path())
        # An editable install may build it anew meanwhile, and what is mapped must not change.
        self.library = Path(shutil.copy2(library, Path(self._folder.name) / library.name))
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill_all()
        self._folder.cleanup()

    def kill_all(self) -> None:
        """Ends every process that runs just now; who waits for one gets a RunError."""
        with self._lock:
            for process in self._running:
                process.kill()

    def environment(self, variant: Variant) -> dict[str, str]:
        """Ours, without what would change malloc, and with the variant's own."""
        ours = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("MALLOC_", "MIMALLOC_", "TCMALLOC_", "GIVEBACK", "LD_"))
            and name != "GLIBC_TUNABLES"
        }
        ours |= dict(variant.environment)
        if variant.engine is not None:
            ours["GIVEBACK"] = variant.engine
        preloads = self.preloads(variant)
        if preloads and not variant.linker:
            ours["LD_PRELOAD"] = ":".join(map(str, preloads))
        return ours

    def preloads(self, variant: Variant) -> list[Path]:
        """The libraries that are preloaded."""
        ours = [self.library] if variant.engine is not None else []
        return [*ours, *([variant.preload] if variant.preload else [])]

    def command(self, variant: Variant, program: Path, arguments: list[str]) -> list[str]:
        """The command line of a run."""
        command = list(variant.linker)
        if variant.linker:
            for path in self.preloads(variant):
                command += ["--preload", str(path)]
        return [*command, str(program), *arguments]

    @contextlib.contextmanager
    def start(
        self, variant: Variant, program: str, arguments: list[str], limit: float = RUN_SECONDS
    ) -> Iterator[Running]:
        """A program, started; killed after so many seconds, or when the `with` is left early."""
        process = subprocess.Popen(
            self.command(variant, self.programs / program, ["--wait", *arguments]),
            env=self.environment(variant),
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with self._lock:
            self._running.add(process)
        timer = threading.Timer(limit, process.kill)
        timer.start()
        try:
            with process:
                try:
                    yield Running(self, variant, process, f"{variant.name}: {program}")
                finally:
                    if process.returncode is None:
                        process.kill()
        finally:
            timer.cancel()
            with self._lock:
                self._running.discard(process)


class Running:
    """A program that was started, and is ended by the `with` around it."""

    def __init__(
        self, bench: Bench, variant: Variant, process: subprocess.Popen[str], name: str
    ) -> None:
        """Of Bench.start."""
        self.bench = bench
        self.variant = variant
        self.process = process
        self.pid = process.pid
        self.name = name
        self._faults = 0

    def read(self) -> Sample:
        """The next JSON object that it prints. RunError if it ends without."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.endswith("\n"):
            raise RunError(f"{self.name} ended without an answer: {self._last_words()}")
        answer: Sample = json.loads(line)
        return answer

    def _last_words(self) -> str:
        assert self.process.stderr is not None
        code = self.process.wait()
        lines = self.process.stderr.read().strip().splitlines()
        return lines[-1] if lines else f"exit code {code}"

    def go_on(self) -> None:
        """Ends its wait for a line."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise RunError(f"{self.name} ended too early: {self._last_words()}") from None

    def cpu_s(self) -> float:
        """CPU time of all its threads so far."""
        return time.clock_gettime(~self.pid << 3 | _SCHEDULER_CLOCK)

    def resident(self) -> int:
        """Resident bytes, cheap; kernels up to 6.15 may be off by 0.2 MB."""
        pages = self._proc("statm").split()[1]
        return int(pages) * os.sysconf("SC_PAGESIZE")

    def memory(self) -> Sample:
        """Resident memory to the page, what of it the kernel may take, and its height."""
        rollup = _kilobytes(self._proc("smaps_rollup"))
        return {
            "rss_settled_mb": rollup.get("Rss", 0) / 1e6,
            "lazy_mb": rollup.get("LazyFree", 0) / 1e6,
            "hwm_mb": _kilobytes(self._proc("status")).get("VmHWM", 0) / 1e6,
        }

    def wakeups(self) -> int:
        """How often its threads went to sleep, by the kernel's count."""
        count = 0
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            with contextlib.suppress(OSError):  # a thread that ended meanwhile
                for line in (task / "status").read_text().splitlines():
                    if line.startswith("voluntary_ctxt_switches:"):
                        count += int(line.split()[1])
        return count

    def check_loaded(self) -> None:
        """RunError unless the libraries of this variant are really in the process."""
        check_loaded(self.bench, self.variant, self._proc("maps"), self.name)

    def stats(self) -> Stats | None:
        """What its engine says; None without one. RunError if it is not the variant's engine."""
        asked = self.variant.engine
        if asked is None or "policy=off" in asked.split(","):
            return None
        try:
            stats = engine.read(self.pid)
        except GivebackError as error:
            raise RunError(f"{self.name}: {error}") from None
        if stats.state != "runs":
            raise RunError(f"{self.name}: the engine does not run: {stats.state}: {stats.reason}")
        if OLD_KERNEL in asked and stats.kernel_path != "madvise":
            raise RunError(f"{OLD_KERNEL} was asked for, and {stats.kernel_path} is used")
        return stats

    def end(self) -> Sample:
        """Lets it end, and reaps it: the CPU time of the whole process, in seconds."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        _, status, usage = os.wait4(self.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        if self.process.returncode != 0:
            raise RunError(f"{self.name} failed: {self._last_words()}")
        return {"cpu_s": usage.ru_utime + usage.ru_stime}

    def _proc(self, name: str) -> str:
        try:
            return Path(f"/proc/{self.pid}/{name}").read_text()
        except OSError:
            raise RunError(f"{self.name} ended too early: {self._last_words()}") from None


def check_loaded(bench: Bench, variant: Variant, maps: str, name: str) -> None:
    """RunError unless the mappings of a process have all libraries of the variant."""
    wanted = bench.preloads(variant)
    if variant.libc:
        wanted.append(variant.libc / "libc.so.6")
    for path in wanted:
        if str(path.resolve()) not in maps:
            raise RunError(f"{name}: {path.name} was not loaded", "is it built for this machine?")


def _kilobytes(text: str) -> dict[str, int]:
    """The lines `Name: N kB` of a file of /proc, in bytes."""
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[1] == "kB":
            found[name] = int(words[0]) * 1024
    return found
