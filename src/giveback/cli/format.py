"""Numbers for people."""

from __future__ import annotations


def size(count: int) -> str:
    """Bytes with a unit; 1 MB is 1,000,000 bytes."""
    if count < 1000:
        return f"{count} B"
    value = float(count)
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 999.95:
            return f"{value:.1f} {unit}"
    return f"{value / 1000:.1f} TB"


def duration(ns: int) -> str:
    """Nanoseconds in the unit that fits."""
    if ns < 1000:
        return f"{ns} ns"
    for unit, factor in (("us", 1e3), ("ms", 1e6)):
        if ns < 999.95 * factor:
            return f"{ns / factor:.3g} {unit}"
    return f"{ns / 1e9:.3g} s" if ns < 1e11 else f"{ns / 1e9:.0f} s"


def share(part: float) -> str:
    """A fraction in percent."""
    return f"{part * 100:g}%"
