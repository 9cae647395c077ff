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
from pathlib import Path

import debian
from debian import UnavailableError

ROOT = Path(__file__).resolve().parent.parent

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


def build_for_all(sources: list[Path], include: Path, name: str) -> Path:
    """Compile a program that runs on every glibc from the oldest on.

    Raises UnavailableError if the oldest glibc's development files are not to be had, and
    subprocess.CalledProcessError if the sources do not compile.
    """
    oldest = get(OLDEST)
    headers = sorted(include.glob("**/*.h"))
    digest = hashlib.sha256()
    for path in [*sources, *headers, Path(__file__)]:
        digest.update(path.read_bytes())
    program = debian.cache_folder() / "programs" / f"{name}-{digest.hexdigest()[:16]}"
    if program.exists():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    start_files = debian.find(oldest.root, "Scrt1.o").parent
    libraries = oldest.libraries
    with tempfile.TemporaryDirectory(prefix="giveback-build-") as folder:
        objects: list[str] = []
        for source in sources:
            target = Path(folder) / f"{len(objects)}-{source.stem}.o"
            objects.append(str(target))
            subprocess.run(
                ["cc", "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-fPIE", "-Wall", "-Wextra"]
                + [f"-I{include}", "-c", str(source), "-o", str(target)],
                check=True,
            )
        linked = Path(folder) / name
        subprocess.run(
            ["cc", "-nostdlib", "-pie", "-o", str(linked)]
            + [str(start_files / "Scrt1.o"), str(start_files / "crti.o")]
            + [_compiler_file("crtbeginS.o"), *objects]
            + [str(libraries / name) for name in ("libpthread.so.0", "libdl.so.2", "libc.so.6")]
            + [str(start_files / "libc_nonshared.a"), str(oldest.loader), "-lgcc"]
            + [_compiler_file("crtendS.o"), str(start_files / "crtn.o")],
            check=True,
        )
        partial = program.with_suffix(".partial")
        shutil.copy2(linked, partial)
        partial.rename(program)
    return program


def child(name: str) -> Path:
    """The program tests/children/NAME.c, with the core of giveback linked into it."""
    csrc = ROOT / "csrc"
    layers = ("base", "os", "heap", "release")
    core = [path for layer in layers for path in sorted((csrc / layer).glob("*.c"))]
    return build_for_all([*core, ROOT / "tests/children" / f"{name}.c"], csrc, name)


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
