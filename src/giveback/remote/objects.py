"""Which malloc another process really uses, from the ELF objects that it has mapped.

The dynamic linker binds `malloc` to the first object that defines it, in this order: the program,
preloaded objects, then what each needs, breadth first. The same is done here with the files.
Objects loaded later by dlopen() are not in that order and cannot replace malloc. giveback's own
library, preloaded, defines a malloc that jumps to the next one: that next one is what counts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections import deque
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from .process import Mapping, environment, file_of, read_maps

# Exported or, in a program that was not stripped, plain symbols that give an allocator away.
_MARKERS = (
    ("AddressSanitizer", ("__asan_init",)),
    ("ThreadSanitizer", ("__tsan_init",)),
    ("MemorySanitizer", ("__msan_init",)),
    ("jemalloc", ("mallctl", "je_mallctl", "_rjem_mallctl")),
    ("mimalloc", ("mi_malloc", "mi_version")),
    ("tcmalloc", ("tc_malloc", "TCMallocInternalMalloc", "MallocExtension_Internal_GetStats")),
    ("snmalloc", ("sn_malloc", "snmalloc_check_bounds")),
    ("scudo", ("__scudo_print_stats", "__scudo_default_options")),
    ("Hoard", ("xxmalloc",)),
)
_NAMES = (
    ("jemalloc", "jemalloc"),
    ("mimalloc", "mimalloc"),
    ("tcmalloc", "tcmalloc"),
    ("libasan", "AddressSanitizer"),
    ("libtsan", "ThreadSanitizer"),
    ("snmalloc", "snmalloc"),
    ("scudo", "scudo"),
)
_LIBC = re.compile(r"libc\.so\.6|libc-\d[\d.]*\.so")
_MUSL = re.compile(r"ld-musl-.*\.so\.1|libc\.musl-.*\.so\.1")
_LINKER = re.compile(r"ld-linux.*\.so\.\d|ld-\d[\d.]*\.so|ld64?\.so\.\d")
_OURS = "libgiveback.so"
_VERSION = re.compile(rb"release version (\d+\.\d+)")


@dataclasses.dataclass(frozen=True)
class _Object:
    path: str
    soname: str
    needed: tuple[str, ...]
    defines_malloc: bool
    markers: tuple[str, ...]
    has_interpreter: bool
    is_dynamic: bool


@dataclasses.dataclass(frozen=True)
class Allocator:
    """The malloc of a process."""

    name: str
    """"glibc", "jemalloc", ..., "unknown", or "none" where malloc cannot be told."""
    provider: str
    """Path of the object that defines it."""
    libc: str | None
    """Path of glibc's libc.so.6, if it is loaded at all."""
    libc_version: str | None
    libcs: int
    """How many times a glibc is loaded; the same file twice is two."""
    musl: bool
    static: bool
    """The program is linked statically: it has no dynamic linker."""
    data: tuple[int, int] | None
    """Writable data of the libc: where main_arena lies."""


def is_libc(path: str) -> bool:
    """Whether the file is glibc's libc, by its name."""
    return _LIBC.fullmatch(Path(path).name) is not None


def is_ours(path: str) -> bool:
    """Whether the file is giveback's library, by its name."""
    return Path(path).name == _OURS


def _defines(section: Any, name: str) -> bool:
    symbols = section.get_symbol_by_name(name) or []
    return any(
        symbol["st_shndx"] != "SHN_UNDEF"
        and symbol["st_info"]["type"] in ("STT_FUNC", "STT_GNU_IFUNC")
        for symbol in symbols
    )


def _inspect(file: Path, path: str) -> _Object | None:
    try:
        with file.open("rb") as stream:
            elf = ELFFile(stream)
            needed: list[str] = []
            soname = Path(path).name
            dynamic: Any = elf.get_section_by_name(".dynamic")
            for tag in dynamic.iter_tags() if dynamic else ():
                if tag.entry.d_tag == "DT_NEEDED":
                    needed.append(tag.needed)
                elif tag.entry.d_tag == "DT_SONAME":
                    soname = tag.soname
            tables = [elf.get_section_by_name(name) for name in (".dynsym", ".symtab")]
            exported = tables[0]
            markers = tuple(
                name
                for name, symbols in _MARKERS
                if any(_defines(table, symbol) for table in tables if table for symbol in symbols)
            )
            interpreter = any(segment["p_type"] == "PT_INTERP" for segment in elf.iter_segments())
            return _Object(
                path=path,
                soname=soname,
                needed=tuple(needed),
                defines_malloc=bool(exported) and _defines(exported, "malloc"),
                markers=markers,
                has_interpreter=interpreter,
                is_dynamic=dynamic is not None,
            )
    except (OSError, ELFError, UnicodeDecodeError):
        return None


def _name(found: _Object) -> str:
    if is_libc(found.path):
        return "glibc"
    if found.markers:
        return found.markers[0]
    file = Path(found.path).name
    return next((name for part, name in _NAMES if part in file), "unknown")


def _in_link_order(program: _Object, preloads: list[str], objects: list[_Object]) -> list[_Object]:
    by_name: dict[str, _Object] = {}
    for found in objects:
        by_name.setdefault(found.soname, found)
        by_name.setdefault(Path(found.path).name, found)
    order = [program]
    queue = deque([program])
    for preload in preloads:
        loaded = by_name.get(Path(preload).name)
        if loaded and loaded not in order:
            order.append(loaded)
            queue.append(loaded)
    while queue:
        for name in queue.popleft().needed:
            loaded = by_name.get(name)
            if loaded and loaded not in order:
                order.append(loaded)
                queue.append(loaded)
    return order


def _preloads(pid: int) -> list[str]:
    names = re.split(r"[:\s]+", environment(pid).get("LD_PRELOAD", ""))
    with contextlib.suppress(OSError):
        names += file_of(pid, "/etc/ld.so.preload").read_text().split()
    return [name for name in names if name]


def _writable_data(libc: Mapping, mappings: list[Mapping]) -> tuple[int, int] | None:
    """The file's own writable mapping and the anonymous rest of it right behind."""
    start = end = 0
    for mapping in mappings:
        same_file = (mapping.device, mapping.inode) == (libc.device, libc.inode)
        if same_file and mapping.writable:
            start, end = start or mapping.start, mapping.end
        elif end and mapping.start == end and not mapping.path and mapping.writable:
            return start, mapping.end
    return (start, end) if end else None


def _libc_version(file: Path) -> str | None:
    try:
        match = _VERSION.search(file.read_bytes())
    except OSError:
        return None
    return match.group(1).decode() if match else None


def _loaded_libcs(mappings: list[Mapping]) -> int:
    """Each load has one run of executable mappings."""
    count = end = 0
    for mapping in mappings:
        if mapping.is_file and "x" in mapping.permissions and is_libc(mapping.path):
            count += mapping.start != end
            end = mapping.end
    return count


def find_allocator(pid: int) -> Allocator:
    """Raises ProcessError if the process is gone or may not be read."""
    mappings = read_maps(pid)
    files: dict[tuple[str, int], Mapping] = {}
    for mapping in mappings:
        if mapping.is_file:
            files.setdefault((mapping.device, mapping.inode), mapping)
    libcs = [mapping for mapping in files.values() if is_libc(mapping.path)]
    libc = libcs[0] if libcs else None
    musl = any(_MUSL.fullmatch(Path(mapping.path).name) for mapping in files.values())

    program_file = Path(f"/proc/{pid}/exe")
    try:
        program_path = str(program_file.readlink())
    except OSError:
        program_path = ""
    program = _inspect(program_file, program_path)
    if program and _LINKER.fullmatch(Path(program_path).name):
        # Started as `ld.so program`: the program is the first other object that has an interpreter.
        program = next(
            (
                found
                for mapping in files.values()
                if (found := _inspect(file_of(pid, mapping.path), mapping.path))
                and found.has_interpreter
                and found.path != program_path
            ),
            program,
        )

    provider: _Object | None = None
    if program:
        objects = [
            found
            for mapping in files.values()
            if not _LINKER.fullmatch(Path(mapping.path).name)
            and (found := _inspect(file_of(pid, mapping.path), mapping.path))
        ]
        order = _in_link_order(program, _preloads(pid), objects)
        provider = next(
            (found for found in order if found.defines_malloc and not is_ours(found.path)), None
        )

    static = program is not None and not program.has_interpreter and libc is None and not musl
    if any("/vgpreload_" in mapping.path for mapping in files.values()):
        name, provider_path = "Valgrind", "valgrind"
    elif provider:
        name, provider_path = _name(provider), provider.path
        if musl and program_path != provider_path and name == "unknown":
            name = "musl"
    elif static and program:
        name, provider_path = (program.markers[0] if program.markers else "none"), program_path
    else:
        name, provider_path = ("musl" if musl else "none"), ""
    return Allocator(
        name=name,
        provider=provider_path,
        libc=libc.path if libc else None,
        libc_version=_libc_version(file_of(pid, libc.path)) if libc else None,
        libcs=_loaded_libcs(mappings),
        musl=musl,
        static=static,
        data=_writable_data(libc, mappings) if libc else None,
    )
