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


class ConfigError(GivebackError, ValueError):
    """A setting is not one that giveback knows; says what it may be."""


class EngineError(GivebackError):
    """The engine cannot do that now: none runs, one runs already, or it is of another version."""


class ReleaseTimeoutError(EngineError, TimeoutError):
    """A release takes longer than was allowed; it goes on."""


def from_status(status: int) -> GivebackError:
    """The exception for a status of the C side other than OK."""
    reason, remedy = _native.status_words(status)
    if status >= _native.DOUBT_FIRST:
        return DoubtError(reason, remedy)
    if status == _native.DENIED:
        return ProcessError(reason, remedy)
    if status == _native.BAD_CONFIG:
        return ConfigError(reason, remedy)
    if status == _native.TIMEOUT:
        return ReleaseTimeoutError(reason, remedy)
    if _native.BAD_CONFIG < status < _native.SANDBOX:
        return EngineError(reason, remedy)
    if status < _native.NO_PROC:
        return BusyError(reason, remedy)
    return UnsupportedError(reason, remedy)
