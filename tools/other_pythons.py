"""The package's tests on every other supported Python that this machine has.

Each gets an environment of its own with giveback installed from this tree, not in editable form:
what a user gets. A version that is not found is a skip that says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from install import ROOT, pip, requirements

VERSIONS = ("3.11", "3.12", "3.13")
# The C side is the same on every Python: what needs other glibcs is not run again.
TESTS = ("tests/unit", "tests/property", "tests/integration/test_account.py")


def find(version: str) -> Path | None:
    """An interpreter of this version: named, on PATH, or one of pyenv's."""
    for name in os.environ.get("GIVEBACK_TEST_PYTHONS", "").split(":"):
        if name and Path(name).name.endswith(version) and Path(name).exists():
            return Path(name)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    candidates = sorted(pyenv.glob(f"{version}.*/bin/python{version}"), reverse=True)
    on_path = shutil.which(f"python{version}")
    if on_path:
        candidates.append(Path(on_path))
    for candidate in candidates:
        # pyenv's shims exist for versions that are not selected; they only print an error.
        done = subprocess.run(
            [str(candidate), "-c", "import ensurepip, venv"], capture_output=True, check=False
        )
        if done.returncode == 0:
            return candidate
    return None


def run(version: str, interpreter: Path) -> int:
    """Install into an environment of that Python and run the tests; the exit code."""
    environment = ROOT / f".venv-{version}"
    if not (environment / "bin/python").exists():
        subprocess.run([str(interpreter), "-m", "venv", str(environment)], check=True)
    python = str(environment / "bin/python")
    os.environ["PATH"] = f"{environment / 'bin'}:{os.environ['PATH']}"
    pip(*requirements(tools=False), python=python)
    pip(
        "--no-build-isolation",
        "--no-deps",
        "--force-reinstall",
        ".",
        "-Csetup-args=-Dtest_doors=true",
        python=python,
    )
    return subprocess.run([python, "-m", "pytest", "-q", *TESTS], cwd=ROOT, check=False).returncode


def main() -> int:
    """0 if the tests passed on each Python that was found."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    failed = 0
    for version in VERSIONS:
        if version == own:
            continue
        interpreter = find(version)
        if interpreter is None:
            print(f"SKIPPED Python {version}: no interpreter found (set GIVEBACK_TEST_PYTHONS)")
            continue
        print(f"Python {version}: {interpreter.name}")
        failed |= run(version, interpreter) != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
