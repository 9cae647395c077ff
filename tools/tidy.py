"""clang-tidy over all C sources, with the compile commands of the test build."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "tidy"


def check(source: str) -> tuple[int, str]:
    """The exit code and the findings for one file."""
    # The bundled clang knows no gcc installation's own headers but the standard ones it carries.
    done = subprocess.run(
        ["clang-tidy", "-p", str(BUILD), "--quiet", source],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    return done.returncode, done.stdout + ("" if done.returncode == 0 else done.stderr)


def main() -> int:
    """1 if anything was found."""
    # Anew each time: files that were added since would not be looked at.
    subprocess.run(
        ["meson", "setup", *(["--wipe"] if BUILD.exists() else []), str(BUILD)]
        + ["-Dtest_doors=true"],
        check=True,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    entries = json.loads((BUILD / "compile_commands.json").read_text())
    sources = sorted({str((BUILD / entry["file"]).resolve()) for entry in entries})
    failed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for status, text in pool.map(check, sources):
            failed |= status != 0
            print(text, end="")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
