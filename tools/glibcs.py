"""Other glibcs than the machine's own, to run real programs on.

They are Debian's libc6 packages, unpacked into a cache folder (debian.py). A program runs on one
of them through that glibc's own ld.so. What cannot be had is reported with the reason.

    python tools/glibcs.py            fetch what is missing, print what there is
"""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import debian
from debian import UnavailableError

ROOT = Path(__file__).resolve().parent.parent
CSRC = ROOT / "csrc"

# The suite that carries each version we want (facts: the layouts of malloc_state differ).
SUITES = {
    "2.31": "bullseye",
    "2.36": "bookworm",
    "2.41": "trixie",
    "2.43": "sid",
    "2.44": "experimental",
}
# Programs are linked against the start-up files and libraries of the oldest one: glibc is
# compatible upwards, so one file runs on all.
OLDEST = "2.31"
# Heaps that tests/children/heap_child.c can take on: what the view is checked on.
SHAPES = (
    "fresh",
    "single",
    "threads",
    "spike",
    "fastbins",
    "arenas300",
    "heaps",
    "noncontiguous",
    "foreign-sbrk",
    "holes-thread",
)


@dataclasses.dataclass(frozen=True)
class Glibc:
    """One unpacked glibc."""

    version: str
    root: Path

    @property
    def libraries(self) -> Path:
        """The folder with libc.so.6."""
        return debian.find(self.root, "libc.so.6").parent

    @property
    def loader(self) -> Path:
        """Its dynamic linker."""
        return debian.find(self.libraries, "ld-linux*.so.*")

    def command(self, program: Path, *arguments: str) -> list[str]:
        """The command line that runs a program on this glibc."""
        return [
            str(self.loader),
            "--library-path",
            str(self.libraries),
            str(program),
            *arguments,
        ]


def get(version: str) -> Glibc:
    """The glibc of a version, fetched if need be. Raises UnavailableError."""
    packages = ["libc6", "libc6-dev"] if version == OLDEST else ["libc6"]
    root = debian.unpacked(f"glibc-{version}", SUITES[version], packages, f"{version}-")
    return Glibc(version, root)


def _compiler_file(name: str) -> str:
    return debian.run(["cc", f"-print-file-name={name}"]).strip()


def _compile(sources: list[Path], include: Path, folder: Path, *options: str) -> list[str]:
    objects: list[str] = []
    for source in sources:
        objects.append(str(folder / f"{len(objects)}-{source.stem}.o"))
        subprocess.run(
            ["cc", "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-Wall", "-Wextra", *options]
            + [f"-I{include}", "-c", str(source), "-o", objects[-1]],
            check=True,
        )
    return objects


def _link(oldest: Glibc, target: Path, objects: list[str], *options: str) -> None:
    start_files = debian.find(oldest.root, "Scrt1.o").parent
    names = ["crti.o"] if "-shared" in options else ["Scrt1.o", "crti.o"]
    start = [start_files / name for name in names]
    libraries = [oldest.libraries / name for name in ("libpthread.so.0", "libdl.so.2", "libc.so.6")]
    subprocess.run(
        ["cc", "-nostdlib", *options, "-o", str(target)]
        + [*map(str, start), _compiler_file("crtbeginS.o"), *objects, *map(str, libraries)]
        + [str(start_files / "libc_nonshared.a"), str(oldest.loader), "-lgcc"]
        + [_compiler_file("crtendS.o"), str(start_files / "crtn.o")],
        check=True,
    )


def _kept(name: str, inputs: list[Path], build: Callable[[Glibc, Path, Path], None]) -> Path:
    """The file of that name in the cache, built (oldest glibc, folder, file) if an input is new."""
    oldest = get(OLDEST)
    digest = hashlib.sha256()
    for path in [*inputs, Path(__file__)]:
        digest.update(path.read_bytes())
    kept = debian.cache_folder() / "programs" / digest.hexdigest()[:16] / name
    if kept.exists():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="giveback-build-") as folder:
        linked = Path(folder) / name
        build(oldest, Path(folder), linked)
        partial = kept.with_name(f"{name}.partial")
        shutil.copy2(linked, partial)
        partial.rename(kept)
    return kept


def build_for_all(sources: list[Path], include: Path, name: str) -> Path:
    """Compile a program that runs on every glibc from the oldest on.

    Raises UnavailableError if the oldest glibc's development files are not to be had, and
    subprocess.CalledProcessError if the sources do not compile.
    """

    def build(oldest: Glibc, folder: Path, program: Path) -> None:
        objects = _compile(sources, include, folder, "-fPIE")
        _link(oldest, program, objects, "-pie")

    return _kept(name, [*sources, *sorted(include.glob("**/*.h"))], build)


def _core() -> list[Path]:
    layers = ("base", "os", "heap", "release")
    return [path for layer in layers for path in sorted((CSRC / layer).glob("*.c"))]


def child(name: str) -> Path:
    """The program tests/children/NAME.c, with the core of giveback linked into it."""
    return build_for_all([*_core(), ROOT / "tests/children" / f"{name}.c"], CSRC, name)


def preload_library() -> Path:
    """libgiveback.so as a machine with the oldest glibc builds it. Raises as build_for_all does."""
    sources = [*_core(), *sorted((CSRC / "preload").glob("*.c"))]
    names = CSRC / "preload" / "giveback.map"

    def build(oldest: Glibc, folder: Path, library: Path) -> None:
        objects = _compile(sources, CSRC, folder, "-fPIC", "-fvisibility=hidden", "-fno-plt")
        options = (f"-soname,{library.name}", f"--version-script={names}", "-z,nodelete", "-z,now")
        _link(oldest, library, objects, "-shared", *(f"-Wl,{option}" for option in options))

    return _kept("libgiveback.so", [*sources, names, *sorted(CSRC.glob("**/*.h"))], build)


def main() -> int:
    """Fetch all, print one line each; 1 if one is missing."""
    missing = 0
    for version in SUITES:
        try:
            print(f"glibc {version}: {get(version).libraries}")
        except UnavailableError as error:
            missing = 1
            print(f"glibc {version}: not available: {error}", file=sys.stderr)
    return missing


if __name__ == "__main__":
    sys.exit(main())
