"""Debian packages unpacked into a cache folder, not installed: what tests and benches run against.

They come with apt from the mirror that this machine is already configured for. Nothing of the
system changes. What cannot be had raises UnavailableError, whose text says why.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
DOWNLOAD_SECONDS = 180


class UnavailableError(Exception):
    """A package, or a tool to get it with, is not to be had here."""


def cache_folder() -> Path:
    """Where downloads, and programs built for tests, are kept."""
    base = os.environ.get("GIVEBACK_CACHE")
    if base:
        return Path(base)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "giveback"


def run(command: list[str], cwd: Path | None = None) -> str:
    """The standard output of a command; UnavailableError with its last line if it fails."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            check=False,
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError as error:
        raise UnavailableError(f"{command[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"{command[0]} did not answer in {DOWNLOAD_SECONDS} s") from error
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise UnavailableError(f"{command[0]}: {lines[-1]}")
    return done.stdout


def _mirror() -> str:
    form = "$(ORIGIN)|$(REPO_URI)"
    targets = run(["apt-get", "indextargets", "--format", form])
    if not targets:  # apt does not know the origin before its first update
        run(["apt-get", "-q", "update"])
        targets = run(["apt-get", "indextargets", "--format", form])
    for line in targets.splitlines():
        origin, _, uri = line.partition("|")
        if origin == "Debian" and uri:
            return uri.rstrip("/")
    raise UnavailableError("apt has no Debian mirror configured")


def _apt(folder: Path, suite: str) -> list[str]:
    """Options that keep apt's state in a folder of ours, with one suite as its only source."""
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
    (folder / "sources.list").write_text(f"deb {signed}{_mirror()} {suite} main\n")
    settings = {
        "Dir::State": folder,
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": "/dev/null",
        "Dir::Cache": folder / "cache",
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "Acquire::Languages": "none",
        "APT::Sandbox::User": "",
        "Debug::NoLocking": "true",
    }
    return [part for key, value in settings.items() for part in ("-o", f"{key}={value}")]


def unpacked(name: str, suite: str, packages: list[str], version: str | None = None) -> Path:
    """The folder with the files of these packages, downloaded on the first call.

    `version` is what the first package's version must begin with.
    """
    into = cache_folder() / "debian" / f"{name}-{platform.machine()}"
    if into.exists():
        return into
    with tempfile.TemporaryDirectory(prefix="giveback-apt-") as temporary:
        folder = Path(temporary)
        options = _apt(folder, suite)
        run(["apt-get", *options, "-q", "update"])
        shown = run(["apt-cache", *options, "show", "--no-all-versions", packages[0]])
        found = re.search(r"^Version: (\S+)", shown, re.MULTILINE)
        have = found.group(1) if found else "none"
        if version and not have.startswith(version):
            raise UnavailableError(f"{packages[0]} of {suite} is {have}, not {version}")
        run(["apt-get", *options, "-q", "download", *packages], cwd=folder)
        partial = into.with_name(into.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for package in folder.glob("*.deb"):
            run(["dpkg-deb", "-x", str(package), str(partial)])
        shutil.rmtree(into, ignore_errors=True)
        partial.rename(into)
    return into


def find(folder: Path, pattern: str) -> Path:
    """The one file below a folder that matches; UnavailableError if there is none."""
    for path in sorted(folder.rglob(pattern)):
        return path
    raise UnavailableError(f"no {pattern} in {folder.name}")
