"""giveback gives memory that a Linux process has freed but still occupies back to the system."""

from __future__ import annotations

import sys as _sys

if not _sys.platform.startswith("linux"):
    raise ImportError(f"giveback works on Linux with glibc only, not on {_sys.platform}")

try:
    from . import _native as _native
except ImportError as _error:
    raise ImportError(
        f"giveback's native part cannot be loaded ({_error}); it needs Linux with glibc: "
        "install a wheel for this Python, or build it here with a C compiler"
    ) from _error

from .account import Arena, GlibcHeap, Pages, Tcache, glibc_heap
from .engine import Released, library_path, release, running, start, stats, stop
from .engine_stats import Stats
from .errors import (
    BusyError,
    ConfigError,
    DoubtError,
    EngineError,
    GivebackError,
    ProcessError,
    ReleaseTimeoutError,
    UnsupportedError,
)

__version__ = "0.1.0"

__all__ = [
    "Arena",
    "BusyError",
    "ConfigError",
    "DoubtError",
    "EngineError",
    "GivebackError",
    "GlibcHeap",
    "Pages",
    "ProcessError",
    "ReleaseTimeoutError",
    "Released",
    "Stats",
    "Tcache",
    "UnsupportedError",
    "__version__",
    "glibc_heap",
    "library_path",
    "release",
    "running",
    "start",
    "stats",
    "stop",
]
