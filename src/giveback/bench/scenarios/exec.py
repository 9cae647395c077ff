"""What a program pays that is over before there is anything to do."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from ..runs import Bench, RunError, Sample, check_loaded
from ..scenario import Column, Options, Panel, Part, Scenario, noisy
from ..variants import Variant

TRUE = "/bin/true"
CAT = "/bin/cat"


class _Started:
    """Starts /bin/true; once a variant, looks whether its libraries are really loaded then."""

    def __init__(self) -> None:
        self._checked: set[str] = set()

    def _check(self, bench: Bench, variant: Variant) -> None:
        if variant.name in self._checked:
            return
        done = subprocess.run(
            bench.command(variant, Path(CAT), ["/proc/self/maps"]),
            env=bench.environment(variant),
            capture_output=True,
            text=True,
            check=False,
        )
        check_loaded(bench, variant, done.stdout, f"{variant.name}: {CAT}")
        self._checked.add(variant.name)

    def sample(self, bench: Bench, variant: Variant) -> Sample:
        """One start and end."""
        self._check(bench, variant)
        command = bench.command(variant, Path(TRUE), [])
        environment = bench.environment(variant)
        began = time.perf_counter_ns()
        pid = os.posix_spawn(command[0], command, environment)
        _, status, usage = os.wait4(pid, 0)
        wall = time.perf_counter_ns() - began
        if status != 0:
            code = os.waitstatus_to_exitcode(status)
            raise RunError(f"{variant.name}: {TRUE} ended with {code}")
        cpu = usage.ru_utime + usage.ru_stime
        return {
            "run_s": wall / 1e9,
            "cpu_s": cpu,
            "wall_us": wall / 1e3,
            "cpu_us": cpu * 1e6,
            "minor_faults": usage.ru_minflt,
        }


def build(options: Options) -> Scenario:
    """Hundreds of them, since each is over in a millisecond."""
    part = Part(
        "",
        f"{TRUE}, started and ended",
        _Started().sample,
        rounds=40 if options.quick else 1000,
        peer_rounds=10 if options.quick else 200,
        columns=(
            Column("wall us", "wall_us", 0),
            Column("CPU us", "cpu_us", 0),
            Column("minor faults", "minor_faults", 0),
        ),
        goals=(noisy("wall time / plain's", 1.10, "run_s"),),
    )
    return Scenario("exec", "tiny processes", (part,), (Panel("start to end, us", "wall_us"),))
