"""Build and run the C unit tests, perhaps under a sanitizer.

    python tools/meson_tests.py BUILD_FOLDER [--sanitize address,undefined]

A sanitizer that this compiler or kernel cannot run is a skip that says so.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def cannot_sanitize(sanitizers: str) -> str | None:
    """Why a program built with these sanitizers does not even start here, or None."""
    with tempfile.TemporaryDirectory(prefix="giveback-sanitize-") as folder:
        source = Path(folder) / "empty.c"
        source.write_text("int main(void) { return 0; }\n")
        program = Path(folder) / "empty"
        for command in (
            ["cc", f"-fsanitize={sanitizers}", str(source), "-o", str(program)],
            [str(program)],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                return (done.stderr.strip().splitlines() or ["no message"])[-1]
    return None


def main() -> int:
    """0 if all tests passed or were skipped."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sanitize", default="none")
    options = parser.parse_args()
    if options.sanitize != "none":
        reason = cannot_sanitize(options.sanitize)
        if reason is not None:
            print(f"SKIPPED C tests under {options.sanitize}: {reason}")
            return 0
    if not (ROOT / options.folder / "build.ninja").exists():
        subprocess.run(
            ["meson", "setup", str(options.folder), "-Dtest_doors=true", "-Db_lundef=false"]
            + [f"-Db_sanitize={options.sanitize}", "-Dbuildtype=debugoptimized"],
            check=True,
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
        )
    return subprocess.run(
        ["meson", "test", "-C", str(options.folder), "--print-errorlogs", "--quiet"],
        cwd=ROOT,
        check=False,
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
