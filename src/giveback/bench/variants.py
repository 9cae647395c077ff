"""The rows of a bench: how one and the same program is run.

A variant is plain glibc, glibc with one of the settings that people try, glibc under giveback, or
another allocator preloaded. What is not installed stays a row, with the reason.
"""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..errors import GivebackError

PLAIN = "glibc"
AGAIN = "glibc-again"
ENGINE = "giveback"
OLD_KERNEL = "kernel=old"


class BenchError(GivebackError):
    """A bench cannot be run as asked."""


@dataclasses.dataclass(frozen=True)
class Variant:
    """How a program is run. Whatever is not here is the same for all of them."""

    name: str
    about: str
    environment: tuple[tuple[str, str], ...] = ()
    engine: str | None = None
    """Run under giveback, with this as GIVEBACK."""
    preload: Path | None = None
    """Another library that is preloaded."""
    linker: tuple[str, ...] = ()
    """The command that runs a program on another glibc."""
    libc: Path | None = None
    """The folder of that glibc."""
    base: str = PLAIN
    """The variant that this one is compared with."""
    missing: str = ""
    """Why it cannot be run here; empty if it can."""
    is_glibc: bool = True
    """glibc's own malloc serves it: malloc_trim(0) has something to trim."""


@dataclasses.dataclass(frozen=True)
class Peer:
    """Another allocator, as a library to preload."""

    family: str
    library: str
    package: str
    """Debian's package that has it."""


PEERS = (
    Peer("jemalloc", "libjemalloc.so.2", "libjemalloc2"),
    Peer("mimalloc", "libmimalloc.so.2", "libmimalloc2.0"),
    Peer("tcmalloc", "libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
)

_GLIBC_SETTINGS = (
    ("arena-max-2", "glibc with two arenas at most", ("MALLOC_ARENA_MAX", "2")),
    (
        "trim-threshold",
        "glibc that keeps 128 KB at the top of the heap",
        ("MALLOC_TRIM_THRESHOLD_", "131072"),
    ),
    (
        "mmap-threshold",
        "glibc that maps each block of 128 KB or more",
        ("MALLOC_MMAP_THRESHOLD_", "131072"),
    ),
)

# mimalloc 2.0 knows the four names after the first; later ones know the first.
_PURGE_NOW = (
    ("MIMALLOC_PURGE_DELAY", "0"),
    ("MIMALLOC_RESET_DELAY", "0"),
    ("MIMALLOC_DECOMMIT_DELAY", "0"),
    ("MIMALLOC_SEGMENT_DECOMMIT_DELAY", "0"),
    ("MIMALLOC_PAGE_RESET", "1"),
)
_PEER_ROWS: tuple[tuple[str, str, str, tuple[tuple[str, str], ...]], ...] = (
    ("jemalloc", "jemalloc", "jemalloc, defaults", ()),
    (
        "jemalloc-bg",
        "jemalloc",
        "jemalloc that purges in the background after 0.1 s",
        (("MALLOC_CONF", "background_thread:true,dirty_decay_ms:100"),),
    ),
    (
        "jemalloc-decay0",
        "jemalloc",
        "jemalloc that purges at once",
        (("MALLOC_CONF", "background_thread:true,dirty_decay_ms:0,muzzy_decay_ms:0"),),
    ),
    ("mimalloc", "mimalloc", "mimalloc, defaults", ()),
    ("mimalloc-purge0", "mimalloc", "mimalloc that purges at once", _PURGE_NOW),
    ("tcmalloc", "tcmalloc", "tcmalloc of gperftools, defaults", ()),
)
PEER_NAMES = (
    "trim",
    *(name for name, *_ in _GLIBC_SETTINGS),
    *(name for name, *_ in _PEER_ROWS),
)


def find_library(name: str) -> Path | None:
    """A library where the dynamic linker of Debian, Fedora, Arch or Alpine's gcompat looks."""
    machine = platform.machine()
    folders = (f"/usr/lib/{machine}-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")
    for folder in folders:
        path = Path(folder) / name
        if path.is_file():
            return path
    return None


def _peer_rows(given: Mapping[str, Path]) -> list[Variant]:
    peers = {peer.family: peer for peer in PEERS}
    found = {
        family: given.get(family) or find_library(peer.library) for family, peer in peers.items()
    }
    rows = []
    for name, family, about, environment in _PEER_ROWS:
        peer, path = peers[family], found[family]
        missing = ""
        if path is None:
            missing = f"{peer.library} is not installed (Debian: apt install {peer.package})"
        rows.append(
            Variant(name, about, environment, preload=path, missing=missing, is_glibc=False)
        )
    for name, path in given.items():
        if name not in peers:
            rows.append(Variant(name, f"{path.name}, as given", preload=path, is_glibc=False))
    return rows


def _libc_rows(name: str, folder: Path, settings: str) -> list[Variant]:
    """A program on another glibc, plain and under giveback."""
    loaders = sorted(folder.glob("ld-linux*.so.*"))
    if not loaders or not (folder / "libc.so.6").is_file():
        raise BenchError(
            f"--libc {name}: {folder} holds no libc.so.6 with its ld-linux*.so",
            "give the folder in which both are",
        )
    linker = (str(loaders[0]), "--library-path", str(folder))
    plain = Variant(name, f"the glibc in {folder.name}", linker=linker, libc=folder, base=name)
    under = dataclasses.replace(
        plain, name=f"{name}-giveback", about=f"{plain.about}, under giveback", engine=settings
    )
    return [plain, under]


def all_variants(
    *,
    settings: str = "",
    old_kernel: bool = False,
    peers: Iterable[str] | None = None,
    libraries: Mapping[str, Path] | None = None,
    libcs: Mapping[str, Path] | None = None,
    trim_timer: Path | None = None,
) -> list[Variant]:
    """Every row, in the order of the tables.

    `settings` is GIVEBACK of the rows under giveback; `peers` names the rows to keep besides
    plain glibc and giveback (None: all); `libraries` gives the library of a family of peers, or of
    a new row; `libcs` gives folders of other glibcs. Raises BenchError for what is not there.
    """
    rows = [
        Variant(PLAIN, "plain glibc"),
        Variant(AGAIN, "the same once more: what differs is noise"),
        Variant(ENGINE, "glibc under giveback", engine=settings),
    ]
    if old_kernel:
        old = f"{settings},{OLD_KERNEL}" if settings else OLD_KERNEL
        rows.append(Variant("giveback-old", "giveback as on kernels before Linux 6", engine=old))
    others = [Variant("trim", "glibc and malloc_trim(0) once a second", preload=trim_timer)]
    for name, about, setting in _GLIBC_SETTINGS:
        others.append(Variant(name, about, (setting,)))
    others += _peer_rows(libraries or {})
    if peers is not None:
        wanted = list(peers)
        known = [row.name for row in others]
        for name in wanted:
            if name not in known:
                raise BenchError(
                    f"--peers: there is no row {name!r}", f"there are {', '.join(known)}"
                )
        others = [row for row in others if row.name in wanted]
    for name, folder in (libcs or {}).items():
        if name in {row.name for row in rows + others}:
            raise BenchError(f"--libc: there is a row {name!r} already", "give another name")
        rows += _libc_rows(name, folder, settings)
    return rows + others
