"""giveback finds the memory that a Linux process has freed but still occupies."""

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
from .errors import BusyError, DoubtError, GivebackError, ProcessError, UnsupportedError

__version__ = "0.1.0"

__all__ = [
    "Arena",
    "BusyError",
    "DoubtError",
    "GivebackError",
    "GlibcHeap",
    "Pages",
    "ProcessError",
    "Tcache",
    "UnsupportedError",
    "__version__",
    "glibc_heap",
]
