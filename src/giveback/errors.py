"""What giveback raises, always with what to do next."""

from __future__ import annotations

from . import _native


class GivebackError(Exception):
    """Base of all errors of this package.

    `reason` says what is the matter, `remedy` (or None) what to do about it; str() has both.
    """

    def __init__(self, reason: str, remedy: str | None = None) -> None:
        super().__init__(f"{reason}; {remedy}" if remedy else reason)
        self.reason = reason
        self.remedy = remedy


class UnsupportedError(GivebackError):
    """Something here is not as giveback needs it: the allocator, the kernel, the platform."""


class BusyError(GivebackError):
    """The process changed faster than it could be read; trying again may work."""


class DoubtError(GivebackError):
    """What was read contradicts itself; nothing was touched, and no figure is given."""


class ProcessError(GivebackError):
    """Another process is gone, or may not be read."""


def from_status(status: int) -> GivebackError:
    """The exception for a status of the C side other than OK."""
    reason, remedy = _native.status_words(status)
    if status >= _native.DOUBT_FIRST:
        return DoubtError(reason, remedy)
    if status == _native.DENIED:
        return ProcessError(reason, remedy)
    if status < _native.NO_PROC:
        return BusyError(reason, remedy)
    return UnsupportedError(reason, remedy)
