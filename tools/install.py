"""Install the tools of the `dev` extra, then giveback itself in editable form.

Two steps, since an editable build rebuilds itself with the environment's own meson and ninja.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def pip(*arguments: str, python: str = sys.executable) -> None:
    """Run pip quietly; its own message is the error."""
    subprocess.run([python, "-m", "pip", "install", "-q", *arguments], check=True, cwd=ROOT)


def requirements(*, tools: bool = True) -> list[str]:
    """What pyproject.toml asks for; without `tools` only what building and testing need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    development = project["optional-dependencies"]["dev"]
    if not tools:
        wanted = ("meson", "ninja", "pytest", "hypothesis")
        development = [line for line in development if line.startswith(wanted)]
    return [*project["dependencies"], *development]


def main() -> int:
    """Install into the environment of this interpreter."""
    try:
        pip(*requirements())
        pip("--no-build-isolation", "--no-deps", "-e", ".", "-Csetup-args=-Dtest_doors=true")
    except subprocess.CalledProcessError as error:
        print(f"giveback: {' '.join(map(str, error.cmd))} failed", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
