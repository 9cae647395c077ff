"""What a bench ran on, for its readers: never a name or an address of the machine."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import psutil

from .. import __version__


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "CPU part"):
            return value.strip()
    return platform.machine()


def _is_virtual() -> bool:
    return any(
        line.startswith("flags") and " hypervisor" in line
        for line in Path("/proc/cpuinfo").read_text().splitlines()
    )


def describe() -> dict[str, Any]:
    """Processor, memory, kernel, glibc, Python, giveback."""
    return {
        "processor": _processor(),
        "architecture": platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "virtual": _is_virtual(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "kernel": platform.release().split("-")[0],
        "glibc": platform.libc_ver()[1],
        "python": platform.python_version(),
        "giveback": __version__,
    }


class Steal:
    """How much of the CPU time the machine's host took since this was made."""

    def __init__(self) -> None:
        self._before = psutil.cpu_times()

    def share(self) -> float:
        """0 to 1; 0 on a machine of one's own."""
        now = psutil.cpu_times()
        total = sum(now) - sum(self._before)
        return float((now.steal - self._before.steal) / total) if total > 0 else 0.0
