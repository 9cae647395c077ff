"""Running commands as somebody else."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import giveback
from giveback import _native

_USER = 65534


def as_ordinary_user(folder: Path) -> list[str]:
    """What to put in front of a command; a skip where that cannot be done.

    The user keeps one capability, to read this Python and its packages wherever they lie. It gives
    no access to other processes. An editable giveback would write to its build folder, so it is
    found in a folder of links to its parts.
    """
    prefix = ["setpriv", f"--reuid={_USER}", "--inh-caps=-all,+dac_read_search"]
    prefix += ["--ambient-caps=-all,+dac_read_search"]
    if not shutil.which("setpriv"):
        pytest.skip("setpriv is not installed")
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("only root can become another user")
    package = folder / "packages" / "giveback"
    package.mkdir(parents=True)
    for part in (Path(giveback.__file__).parent, Path(_native.__file__).parent):
        for file in part.iterdir():
            needed = file.suffix in (".py", ".so") or (file / "__init__.py").exists()
            if needed and not (package / file.name).exists():
                (package / file.name).symlink_to(file)
    build = Path(_native.__file__).parents[2]
    return [*prefix, "env", f"MESONPY_EDITABLE_SKIP={build}", f"PYTHONPATH={package.parent}"]
