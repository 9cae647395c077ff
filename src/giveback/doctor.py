"""What giveback can do here, for this process or another, and the remedy for what it cannot.

Collects findings and judges them; prints nothing. Covers the allocator, the layout of its
arenas and the kernel. Does not look at how much memory is held.
"""

from __future__ import annotations

import dataclasses
import os
import re
import stat
from pathlib import Path
from typing import Literal

from . import _native
from .errors import GivebackError, from_status
from .remote import engine as remote_engine
from .remote import glibc as remote_glibc
from .remote import process
from .remote.objects import Allocator, find_allocator

Verdict = Literal["good", "note", "bad"]

# What keeps registered memory for a device and must hear of every release (openucx/ucx#3836).
_PURGES = {
    "jemalloc": "set MALLOC_CONF=background_thread:true,dirty_decay_ms:1000 for jemalloc itself",
    "mimalloc": "set MIMALLOC_PURGE_DELAY=10 for mimalloc itself",
    "tcmalloc": "set TCMALLOC_RELEASE_RATE=10 for tcmalloc itself",
    "AddressSanitizer": "run a build without -fsanitize=address",
    "ThreadSanitizer": "run a build without -fsanitize=thread",
    "MemorySanitizer": "run a build without -fsanitize=memory",
    "Valgrind": "run the program without Valgrind",
    "musl": "run the program on a distribution with glibc",
}
_LAYOUTS = {112: "glibc 2.27 to 2.42", 24: "glibc 2.43 on"}


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    subject: str
    verdict: Verdict
    """"good", "note" (works, but worth knowing) or "bad" (something will not work)."""
    text: str
    remedy: str | None = None


@dataclasses.dataclass(frozen=True)
class Report:
    """All findings about one process and the kernel it runs on."""

    pid: int
    is_self: bool
    command: str
    allocator: str
    libc: str | None
    libc_version: str | None
    layout: str | None
    """Which layout of malloc_state was derived, in words."""
    bins_offset: int | None
    arenas: int | None
    verified: str | None
    """"mallinfo" (difference 0), "structure", or None."""
    findings: tuple[Finding, ...]

    @property
    def works(self) -> bool:
        """Whether nothing is bad."""
        return all(finding.verdict != "bad" for finding in self.findings)


def _allocator_findings(allocator: Allocator) -> list[Finding]:
    subject = "allocator"
    if allocator.static:
        which = f" (it contains {allocator.name})" if allocator.name != "none" else ""
        return [
            Finding(
                subject,
                "bad",
                f"the program is linked statically{which}: its malloc cannot be recognised, "
                "and nothing can be preloaded into it",
                "link it dynamically against glibc",
            )
        ]
    if allocator.libc is None:
        name = "musl" if allocator.musl else "no libc that we know"
        return [Finding(subject, "bad", f"{name} is loaded, not glibc", _PURGES["musl"])]
    if allocator.name == "none":
        return [
            Finding(
                subject,
                "bad",
                "which malloc the program uses cannot be told: its files cannot be read",
                "run as the same user or as root, in the same container",
            )
        ]
    if allocator.name != "glibc":
        remedy = _PURGES.get(allocator.name, "use that allocator's own purge or decay settings")
        return [
            Finding(
                subject,
                "bad",
                f"malloc is {allocator.name} (from {allocator.provider}), not glibc's: "
                "releasing what glibc holds would change nothing",
                remedy,
            )
        ]
    if allocator.libcs > 1:
        return [Finding(subject, "bad", *_native.status_words(_native.SECOND_LIBC))]
    return [Finding(subject, "good", f"glibc {allocator.libc_version or '?'} ({allocator.libc})")]


@dataclasses.dataclass
class _Layout:
    bins_offset: int | None = None
    arenas: int | None = None
    verified: str | None = None
    finding: Finding | None = None


def _describe(layout: _Layout, main_arena: int, how: str, heap_header: int) -> None:
    bins = layout.bins_offset
    name = _LAYOUTS.get(bins or 0, "unknown")
    header = f", heap_info of {heap_header} bytes" if heap_header else ""
    layout.finding = Finding(
        "layout",
        "good",
        f"{name}: bins at {bins} in malloc_state{header}; main arena at {main_arena:#x}, "
        f"{layout.arenas} arena{'s' if layout.arenas != 1 else ''}; {how}",
    )


def _own_layout() -> _Layout:
    layout = _Layout()
    status, raw = _native.account()
    if status == _native.OK:
        status, comparison = _native.verify()
    if status != _native.OK:
        error = from_status(status)
        layout.finding = Finding("layout", "bad", error.reason, error.remedy)
        return layout
    layout.bins_offset = raw["glibc"]["bins_offset"]
    layout.arenas = len(raw["arenas"])
    layout.verified = "structure"
    how = "verified by structure"
    if comparison["verdict"] == "equal":
        layout.verified = "mallinfo"
        how += (
            " and against " + ("mallinfo2" if comparison["wide"] else "mallinfo") + ", difference 0"
        )
    elif comparison["verdict"] == "different":
        error = from_status(_native.DOUBT_FIGURES)
        layout.finding = Finding("layout", "bad", error.reason, error.remedy)
        return layout
    else:
        how += f" (not against mallinfo: {comparison['verdict']})"
    _describe(layout, raw["glibc"]["main_arena"], how, raw["glibc"]["heap_header"])
    return layout


def _remote_layout(pid: int, allocator: Allocator) -> _Layout:
    layout = _Layout()
    if allocator.data is None:
        return layout
    try:
        found = remote_glibc.derive(pid, allocator.data)
    except GivebackError as error:
        layout.finding = Finding("layout", "bad", error.reason, error.remedy)
        return layout
    layout.bins_offset = found.bins_offset
    layout.arenas = len(found.arenas)
    layout.verified = "structure"
    _describe(layout, found.main_arena, "verified by structure, from outside", found.heap_header)
    return layout


def _engine_finding(pid: int) -> Finding:
    subject = "engine"
    try:
        stats = remote_engine.read(pid)
    except remote_engine.NoEngineError as error:
        return Finding(subject, "note", error.reason, error.remedy)
    except GivebackError as error:
        return Finding(subject, "bad", error.reason, error.remedy)
    if stats.state == "refuses":
        text = f"runs in this process, but touches nothing: {stats.reason}"
        return Finding(subject, "bad", text, stats.remedy)
    megabytes = stats.returned / 1e6
    text = f"runs in this process (policy {stats.policy}): {megabytes:.1f} MB came back until now"
    return Finding(subject, "good", text)


def _is_privileged(pid: int) -> bool:
    """Whether ld.so ignores LD_PRELOAD for this program: set-user-ID, set-group-ID."""
    try:
        mode = Path(f"/proc/{pid}/exe").stat().st_mode
    except OSError:
        return False
    return bool(mode & (stat.S_ISUID | stat.S_ISGID))


def _process_findings(pid: int, fields: dict[str, str]) -> list[Finding]:
    findings = []
    seccomp = fields.get("Seccomp", "0")
    if seccomp != "0":
        findings.append(
            Finding(
                "seccomp",
                "note",
                f"the process is under seccomp (mode {seccomp}): only system calls that a program "
                "makes anyway (madvise, futex, reads) can be used in it",
            )
        )
    if _is_privileged(pid):
        findings.append(
            Finding(
                "privileges",
                "bad",
                "the program is set-user-ID or set-group-ID: ld.so ignores LD_PRELOAD for it",
                "start it from a service manager as the user it needs, without the file mode bit",
            )
        )
    tunables = process.environment(pid).get("GLIBC_TUNABLES", "")
    huge = re.search(r"glibc\.malloc\.hugetlb=(\w+)", tunables)
    if huge and huge.group(1) not in ("0", "1"):
        findings.append(Finding("malloc huge pages", "bad", *_native.status_words(_native.HUGETLB)))
    mappings = process.read_maps(pid)
    targets = process.descriptors(pid)
    paths = [mapping.path for mapping in mappings] + targets
    devices = sorted({Path(path).name for path in paths if _native.is_device_memory(path)})
    if devices:
        findings.append(
            Finding(
                "RDMA",
                "bad",
                f"{', '.join(devices)}: memory registered for a device must not be released "
                "behind its back",
                "leave this process alone; malloc_trim(0) is safe where its libc madvise is hooked",
            )
        )
    if any("userfaultfd" in target for target in targets):
        findings.append(
            Finding(
                "userfaultfd",
                "bad",
                "the process has a userfaultfd: releasing memory could wait for its monitor",
                "leave this process alone",
            )
        )
    return findings


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def _kernel_findings() -> list[Finding]:
    features = _native.features()
    yes, untried = _native.FEATURE_YES, _native.FEATURE_UNTRIED
    release = os.uname().release
    findings = []

    def of_feature(name: str, subject: str, works: str, works_not: str) -> None:
        value = features[name]
        if value == untried:
            findings.append(Finding(subject, "note", "not tried: this process is under seccomp"))
        else:
            good = value == yes
            findings.append(
                Finding(subject, "good" if good else "note", works if good else works_not)
            )

    of_feature(
        "process_madvise",
        "kernel: process_madvise",
        f"works on oneself (Linux {release}"
        + (", without opening a pidfd)" if features["pidfd_self"] == yes else ")"),
        f"does not work on oneself on Linux {release} (needs about 6.13): "
        "pages are released with madvise, one call a range",
    )
    of_feature(
        "pagemap_scan",
        "kernel: PAGEMAP_SCAN",
        "works: knows resident, swapped and zero pages",
        "not on this kernel (needs 6.7): " + _residency_fallback(features),
    )
    of_feature("madv_free", "kernel: MADV_FREE", "works", "not on this kernel (needs 4.5)")
    if not any(features[name] == yes for name in ("pagemap_scan", "pagemap", "mincore")):
        findings.append(
            Finding("kernel: residency", "bad", *_native.status_words(_native.NO_RESIDENCY))
        )

    huge = _read("/sys/kernel/mm/transparent_hugepage/enabled")
    mode = re.search(r"\[(\w+)\]", huge or "")
    if mode is None:
        findings.append(
            Finding("kernel: huge pages", "note", "transparent huge pages are not in this kernel")
        )
    elif mode.group(1) == "always":
        findings.append(
            Finding(
                "kernel: huge pages",
                "note",
                "transparent huge pages: always; released holes may be filled again by khugepaged",
                "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
            )
        )
    else:
        findings.append(
            Finding("kernel: huge pages", "good", f"transparent huge pages: {mode.group(1)}")
        )

    yama = _read("/proc/sys/kernel/yama/ptrace_scope")
    if yama in (None, "0"):
        text = "not in this kernel" if yama is None else "ptrace_scope=0"
        findings.append(
            Finding("kernel: Yama", "good", f"{text}: processes of the same user can be read")
        )
    else:
        findings.append(
            Finding(
                "kernel: Yama",
                "note",
                f"ptrace_scope={yama}: the memory of other than children can be read by root only",
                "sysctl kernel.yama.ptrace_scope=0, or run giveback as root",
            )
        )
    if features["seccomp"] > 0:
        findings.append(
            Finding(
                "seccomp",
                "note",
                f"giveback itself runs under seccomp (mode {features['seccomp']}): "
                "not every feature was tried",
            )
        )
    return findings


def _residency_fallback(features: dict[str, int]) -> str:
    if features["pagemap"] == _native.FEATURE_YES:
        return "/proc/self/pagemap is read instead"
    if features["mincore"] == _native.FEATURE_YES:
        return "mincore is used instead, which takes swapped pages for returned ones"
    return "and neither pagemap nor mincore works"


def examine(pid: int | None = None) -> Report:
    """Examine a process, or this one. Raises ProcessError if it is gone or may not be read."""
    own = pid is None or pid == os.getpid()
    pid = os.getpid() if pid is None else pid
    fields = process.status_fields(pid)
    allocator = find_allocator(pid)
    findings = _allocator_findings(allocator)
    layout = _Layout()
    if findings[0].verdict == "good":
        layout = _own_layout() if own else _remote_layout(pid, allocator)
        if layout.finding:
            findings.append(layout.finding)
        findings.append(_engine_finding(pid))
    findings += _process_findings(pid, fields)
    findings += _kernel_findings()
    return Report(
        pid=pid,
        is_self=own,
        command=fields.get("Name", "?"),
        allocator=allocator.name,
        libc=allocator.libc,
        libc_version=allocator.libc_version,
        layout=_LAYOUTS.get(layout.bins_offset or 0),
        bins_offset=layout.bins_offset,
        arenas=layout.arenas,
        verified=layout.verified,
        findings=tuple(findings),
    )
