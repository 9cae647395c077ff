from typing import Any

OK: int
BUSY: int
DENIED: int
NO_PROC: int
NO_MEMORY: int
NO_RESIDENCY: int
BAD_CONFIG: int
NO_THREAD: int
NO_ENGINE: int
RUNNING: int
TIMEOUT: int
OFF: int
OTHER_ENGINE: int
SANDBOX: int
FOREIGN_ALLOCATOR: int
NO_LIBC: int
SECOND_LIBC: int
UNKNOWN_LAYOUT: int
HUGETLB: int
DOUBT_FIRST: int
DOUBT_ARENA: int
DOUBT_HEAP: int
DOUBT_TOP: int
DOUBT_LINK: int
DOUBT_CHUNK: int
DOUBT_FIGURES: int
DEFAULT_HOLD_NS: int
DEFAULT_PATIENCE_NS: int
ENGINE_NONE: int
ENGINE_RUNS: int
ENGINE_REFUSES: int
FEATURE_NO: int
FEATURE_YES: int
FEATURE_UNTRIED: int

def account(
    hold_ns: int = ..., patience_ns: int = ..., first_source: int = ...
) -> tuple[int, dict[str, Any]]: ...
def verify() -> tuple[int, dict[str, Any]]: ...
def features() -> dict[str, int]: ...
def derive_from_file(
    fd: int, data_start: int, data_end: int, /
) -> tuple[int, dict[str, Any], list[int]]: ...
def is_device_memory(path: str, /) -> bool: ...
def status_words(status: int, /) -> tuple[str, str | None]: ...
def engine_open(path: str, /) -> tuple[int, str, bool]: ...
def engine_start(settings: str, /) -> tuple[int, str]: ...
def engine_stop() -> int: ...
def engine_release(timeout_ns: int, /) -> tuple[int, int, int]: ...
def engine_stats() -> tuple[int, dict[str, Any]]: ...
def parse_config(settings: str, /) -> tuple[int, str]: ...
def stats_from_file(fd: int, /) -> tuple[int, dict[str, Any]]: ...
def request_release(fd: int, /) -> tuple[int, int]: ...
def signal_thread(pid: int, thread: int, signal: int, /) -> bool: ...
def await_release(fd: int, request: int, timeout_ns: int, /) -> tuple[int, int, int]: ...
