"""Where giveback cannot work, it says so in words: never a crash, never a guess."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import debian
import pytest
from support.children import WAITING_PROGRAM, compile_program, get_glibc, run_python, waiting

LOOK = """
import giveback
try:
    giveback.glibc_heap()
except giveback.GivebackError as error:
    print(type(error).__name__, "|", error)
else:
    print("no error")
"""

FOREIGN = {
    "jemalloc": ("libjemalloc2", "libjemalloc.so.2", []),
    "mimalloc": ("libmimalloc2.0", "libmimalloc.so.2*", []),
    "tcmalloc": ("libtcmalloc-minimal4", "libtcmalloc_minimal.so.4", ["libunwind8"]),
}


def foreign_library(name: str) -> Path:
    package, pattern, _ = FOREIGN[name]
    try:
        return debian.find(debian.unpacked(package, "bookworm", [package]), pattern)
    except debian.UnavailableError as error:
        pytest.skip(f"{package}: {error}")


def doctor(pid: int | None = None) -> tuple[int, dict[str, object], str]:
    command = [sys.executable, "-m", "giveback", "doctor", "--json"]
    if pid is not None:
        command.append(str(pid))
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def texts(report: dict[str, object]) -> str:
    return json.dumps(report["findings"])


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_allocator_is_named_and_left_alone(name: str) -> None:
    library = foreign_library(name)
    done = run_python(LOOK, LD_PRELOAD=str(library))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("UnsupportedError"), done.stdout
    assert library.name.split(".so")[0] in done.stdout

    code = "import sys; print('ready', flush=True); sys.stdin.read()"
    with waiting([sys.executable, "-c", code], LD_PRELOAD=str(library)) as child:
        status, report, _ = doctor(child.pid)
    assert status == 1
    assert report["allocator"] == name
    assert name in texts(report)


def test_a_program_linked_against_another_allocator(tmp_path: Path) -> None:
    library = foreign_library("jemalloc")
    program = compile_program(
        tmp_path, WAITING_PROGRAM, str(library), f"-Wl,-rpath,{library.parent}"
    )
    with waiting([str(program)]) as child:
        status, report, _ = doctor(child.pid)
    assert status == 1
    assert report["allocator"] == "jemalloc"


@pytest.mark.parametrize(
    ("option", "name"),
    [("-fsanitize=address", "AddressSanitizer"), ("-fsanitize=thread", "ThreadSanitizer")],
)
def test_sanitizers_are_recognised(tmp_path: Path, option: str, name: str) -> None:
    program = compile_program(tmp_path, WAITING_PROGRAM, option)
    with waiting([str(program)], ASAN_OPTIONS="detect_leaks=0") as child:
        status, report, _ = doctor(child.pid)
    assert status == 1
    assert report["allocator"] == name


def test_valgrind_is_recognised(tmp_path: Path) -> None:
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        pytest.skip("valgrind is not installed")
    program = compile_program(tmp_path, WAITING_PROGRAM)
    with waiting([valgrind, "-q", str(program)]) as child:
        status, report, _ = doctor(child.pid)
    assert status == 1
    assert report["allocator"] == "Valgrind"


def test_a_static_program(tmp_path: Path) -> None:
    program = compile_program(tmp_path, WAITING_PROGRAM, "-static")
    with waiting([str(program)]) as child:
        status, report, _ = doctor(child.pid)
    assert status == 1
    assert "statically" in texts(report)
    assert report["libc"] is None


def test_a_musl_program(tmp_path: Path) -> None:
    try:
        folder = debian.unpacked("musl", "bookworm", ["musl", "musl-dev"])
        libraries = debian.find(folder, "Scrt1.o").parent
        loader = debian.find(folder, "libc.so")
    except debian.UnavailableError as error:
        pytest.skip(f"musl: {error}")
    # The dynamic linker of musl is its libc.so, under the name by which it is known.
    linker = tmp_path / f"ld-musl-{os.uname().machine}.so.1"
    shutil.copy2(loader, linker)
    source = """
    int puts(const char *); int getchar(void); int fflush(void *); void *malloc(unsigned long);
    int main(void) {
      void *volatile block = malloc(100); (void)block;
      puts("ready"); fflush(0); getchar();
      return 0;
    }
    """
    program = compile_program(
        tmp_path,
        source,
        "-nostdlib",
        "-no-pie",
        str(libraries / "crt1.o"),
        str(libraries / "crti.o"),
        str(loader),
        str(libraries / "crtn.o"),
        f"-Wl,--dynamic-linker={linker}",
    )
    with waiting([str(program)]) as child:
        status, report, _ = doctor(child.pid)
    assert status == 1
    assert report["allocator"] == "musl"
    assert "musl" in texts(report)


@pytest.mark.parametrize("version", ["2.31", "2.43"])
def test_another_glibc_from_outside(version: str) -> None:
    import glibcs

    glibc = get_glibc(version)
    # cat allocates little and needs only libc; it waits for its standard input.
    source = Path(__file__).parent.parent / "children" / "waiting.c"
    try:
        program = glibcs.build_for_all([source], source.parent, "waiting")
    except debian.UnavailableError as error:
        pytest.skip(str(error))
    with waiting(glibc.command(program)) as child:
        status, report, stderr = doctor(child.pid)
    assert status == 0, (report, stderr)
    assert report["libc_version"] == version
    assert report["bins_offset"] == (112 if version == "2.31" else 24)
    assert report["arenas"] == 3
    assert report["verified"] == "structure"


@pytest.mark.parametrize("copied", [False, True], ids=["the same file", "a copy of it"])
def test_a_second_libc_is_refused(tmp_path: Path, copied: bool) -> None:
    """One call of dlmopen loads libc once more."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    libc = next(line.split()[-1] for line in lines if "/libc.so.6" in line)
    if copied:
        libc = shutil.copy2(libc, str(tmp_path / "libc.so.6"))
    code = f"""
import ctypes
own = ctypes.CDLL(None)
own.dlmopen.restype = ctypes.c_void_p
assert own.dlmopen(ctypes.c_long(-1), b"{libc}", 2)
{LOOK}
import os, giveback.doctor
report = giveback.doctor.examine()
assert not report.works and any("two copies" in f.text for f in report.findings), report
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    assert "two copies of libc" in done.stdout


def test_explicit_huge_pages_are_refused() -> None:
    hidden = "import os; del os.environ['GLIBC_TUNABLES']\n" + LOOK
    for code in (LOOK, hidden):
        done = run_python(code, GLIBC_TUNABLES="glibc.malloc.hugetlb=2")
        assert "huge pages" in done.stdout, (done.stdout, done.stderr)
    assert done.stdout.startswith("UnsupportedError"), (done.stdout, done.stderr)
    assert "huge pages" in done.stdout


def test_without_proc() -> None:
    unshare = [
        "unshare",
        "--mount",
        "--map-root-user",
        "sh",
        "-c",
        'mount -t tmpfs none /proc && exec "$@"',
        "sh",
    ]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no mount namespaces here")
    done = run_python(LOOK, *unshare)
    assert done.stdout.startswith("UnsupportedError"), (done.stdout, done.stderr)
    assert "/proc" in done.stdout
    done = subprocess.run(
        [*unshare, sys.executable, "-m", "giveback", "doctor"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "/proc" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_memory_for_our_tables() -> None:
    code = """
import resource, giveback
giveback.glibc_heap()
size = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (size, size))
try:
    giveback.glibc_heap()
    print("enough")
except giveback.UnsupportedError as error:
    print(error)
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    assert "RLIMIT_AS" in done.stdout or done.stdout == "enough\n"
