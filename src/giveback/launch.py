"""Whether a program can be started with the engine preloaded, and the environment for that.

The dynamic linker ignores LD_PRELOAD silently, or with a line on the program's stderr, where it
cannot be followed. So everything that is known to prevent it is looked at before the program
starts, in its files. Nothing here starts anything. Thread-safe.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.segments import InterpSegment

from . import _native
from .engine import library_path
from .errors import ConfigError, GivebackError, ProcessError
from .remote import process

_LINKER = re.compile(r"ld-linux.*\.so\.\d|ld-\d[\d.]*\.so|ld64?\.so\.\d|ld\.so")
_INTERPRETERS = 4
"""So deep the kernel follows #! lines, give or take one."""
_SHEBANG_BYTES = 256
_SEPARATORS = re.compile(r"[:\s]+")


class LaunchError(GivebackError):
    """The program cannot be started, or giveback cannot be put into it."""


def find_program(name: str, search: str) -> Path:
    """As execvp finds it, along `search`, the value of PATH. Raises LaunchError."""
    if not name:
        raise LaunchError("the name of the program is empty", "give a program after --")
    folders = [""] if "/" in name else search.split(":")
    denied: Path | None = None
    for folder in folders:
        path = Path(folder) / name
        try:
            mode = path.stat().st_mode
        except OSError as error:
            if "/" in name:
                raise LaunchError(f"{name} cannot be run: {error.strerror}") from error
            continue
        if stat.S_ISREG(mode) and os.access(path, os.X_OK, effective_ids=True):
            return path
        denied = denied or path
    if denied and denied.is_dir():
        raise LaunchError(f"{denied} is a folder, not a program")
    if denied:
        raise LaunchError(
            f"{denied} may not be executed", f"chmod +x {denied}, or run it as a script"
        )
    raise LaunchError(f"there is no program {name!r} in PATH", "check the name, or give its path")


def _check_privileges(path: Path) -> None:
    """In a program that gains privileges at its start the linker drops LD_PRELOAD."""
    status = path.stat()
    remedy = "start it from a service manager as the user it needs, without the file mode bit"
    if status.st_mode & stat.S_ISUID and status.st_uid != os.getuid():
        raise LaunchError(f"{path} is set-user-ID: the dynamic linker preloads nothing", remedy)
    runs_as_group = status.st_mode & stat.S_ISGID and status.st_mode & stat.S_IXGRP
    if runs_as_group and status.st_gid != os.getgid():
        raise LaunchError(f"{path} is set-group-ID: the dynamic linker preloads nothing", remedy)
    if os.getuid() != 0:
        with contextlib.suppress(OSError):  # no such attribute, or a file system without any
            os.getxattr(path, "security.capability")
            raise LaunchError(
                f"{path} has file capabilities: the dynamic linker preloads nothing",
                "let a service manager grant them (AmbientCapabilities=) instead of the file",
            )


def _interpreter_of_script(path: Path, line: bytes, search: str) -> Path:
    """The program that the kernel starts for a #! line; where that is env, the one env starts."""
    parts = os.fsdecode(line[2:].strip()).split(None, 1)
    if not parts:
        raise LaunchError(f"{path} has an empty #! line", "name the interpreter there")
    try:
        interpreter = find_program(parts[0] if "/" in parts[0] else f"./{parts[0]}", search)
    except LaunchError as error:
        raise LaunchError(
            f"{path} asks for an interpreter: {error.reason}", error.remedy
        ) from error
    if interpreter.name != "env" or len(parts) < 2:
        return interpreter
    for word in parts[1].split():
        if word in ("-S", "-i", "-v", "-vS", "--") or "=" in word:
            continue
        # Other options may have arguments of their own: then it is env that is looked at.
        return interpreter if word.startswith("-") else find_program(word, search)
    return interpreter


def _check_elf(path: Path) -> None:
    with path.open("rb") as stream:
        try:
            elf = ELFFile(stream)
            machine, bits = elf["e_machine"], elf.elfclass
            interpreter = next(
                (s.get_interp_name() for s in elf.iter_segments() if isinstance(s, InterpSegment)),
                None,
            )
        except (ELFError, UnicodeDecodeError) as error:
            raise LaunchError(f"{path} is a damaged ELF file ({error})") from error
    with library_path().open("rb") as stream:
        ours = ELFFile(stream)
        wanted, wanted_bits = ours["e_machine"], ours.elfclass
    if (machine, bits) != (wanted, wanted_bits):
        raise LaunchError(
            f"{path} is a {bits}-bit program for {machine[3:]}, giveback's library is for "
            f"{wanted_bits}-bit {wanted[3:]}",
            "install giveback for that architecture",
        )
    if interpreter is None and not _LINKER.fullmatch(path.resolve().name):
        raise LaunchError(
            f"{path} is linked statically: nothing can be preloaded into it",
            "link it dynamically against glibc",
        )
    if interpreter and "ld-musl" in interpreter:
        raise LaunchError(
            f"{path} is a program for musl, not for glibc",
            "run the program on a distribution with glibc",
        )


def check_program(path: Path, search: str, *, exec_again: bool = False) -> None:
    """Raises LaunchError, with what to do, if the engine could not get into this program.

    Scripts are followed to their interpreters. What the program starts itself is not looked at.
    `exec_again`: the engine shall stay in this program only, so one that turns into another one
    (env in a #! line) would lose it.
    """
    script = path
    for _ in range(_INTERPRETERS):
        _check_privileges(path)
        try:
            with path.open("rb") as stream:
                begin = stream.read(_SHEBANG_BYTES)
        except PermissionError:
            return  # may be run but not read: then there is nothing more to know
        if begin.startswith(b"\x7fELF"):
            _check_elf(path)
            return
        if not begin.startswith(b"#!"):
            raise LaunchError(
                f"{path} is neither an ELF program nor a script with a #! line",
                f"name its interpreter: sh {path}",
            )
        line = begin.split(b"\n", 1)[0]
        path = _interpreter_of_script(path, line, search)
        if exec_again and re.match(rb"#!\s*\S*/env\s", line):
            raise LaunchError(
                f"{script} is started by env, which would keep the engine from {path.name}",
                f"name the interpreter: giveback run --no-children -- {path.name} {script}",
            )
    raise LaunchError(f"the #! lines of {script} lead from script to script")


def library() -> Path:
    """The path of the library, fit for LD_PRELOAD. Raises LaunchError."""
    path = library_path()
    if not path.is_file():
        raise LaunchError(f"giveback's library is missing ({path})", "reinstall giveback")
    if re.search(r"[:\s$]", str(path)):
        raise LaunchError(
            f"LD_PRELOAD cannot hold the path of giveback's library, {str(path)!r}",
            "install giveback into a folder without spaces, colons and dollar signs",
        )
    return path


def settings(inherited: str, given: Mapping[str, str]) -> str:
    """The value of GIVEBACK: what is inherited, then what was given, which wins.

    Raises ConfigError with one line that says what a value may be.
    """
    status, message = _native.parse_config(inherited)
    if status != _native.OK:
        raise ConfigError(f"GIVEBACK in the environment: {message}", "correct or unset it")
    for key, value in given.items():
        status, message = _native.parse_config(f"{key}={value}")
        if "," in value or status != _native.OK:
            message = message or f"{key} must be one value, not {value!r}"
            unit = key not in ("kernel", "policy") and re.fullmatch(r"[\d.]+", value)
            raise ConfigError(f"{message}{' (write the unit, too)' if unit else ''}")
    return ",".join(filter(None, (inherited, *(f"{key}={value}" for key, value in given.items()))))


def environment(base: Mapping[str, str], text: str) -> dict[str, str]:
    """The environment of the program: ours in front in LD_PRELOAD, once, and GIVEBACK if needed."""
    path = library()
    others = [
        name
        for name in _SEPARATORS.split(base.get("LD_PRELOAD", ""))
        if name and Path(name).name != path.name
    ]
    changed = {**base, "LD_PRELOAD": ":".join([str(path), *others])}
    if text:
        changed["GIVEBACK"] = text
    return changed


def initial_environment() -> dict[str, str]:
    """What this process was started with.

    Not os.environ: in the C locale Python sets LC_CTYPE for itself, and a program that is started
    through giveback must not see that.
    """
    try:
        return process.environment(os.getpid())
    except ProcessError:  # no /proc
        return dict(os.environ)
