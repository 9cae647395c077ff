"""What a program shows of itself, and passes on, is its own; what is wrong never stops it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.children import SECONDS, compile_child, compile_program
from support.hazards import FIERCE, LIBRARY, NONE, environment, resting, run


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_child(tmp_path_factory.mktemp("program"), "hazard_exits")


@pytest.mark.parametrize(
    "settings", ["age=5", "colour=red", "age=1ms,,cpu", "\x1b[2J=1", "=" * 3000]
)
def test_a_wrong_giveback_is_one_line(program: Path, settings: str) -> None:
    done = run(program, "grow", "43", GIVEBACK=settings)
    assert done.returncode == 43
    assert json.loads(done.stdout)["state"] == NONE
    assert done.stderr.startswith("giveback: GIVEBACK: ")
    assert done.stderr.endswith("; this program runs without giveback\n")
    assert done.stderr.count("\n") == 1
    assert "\x1b" not in done.stderr


def test_a_wrong_giveback_without_anywhere_to_say_it() -> None:
    done = subprocess.run(
        ["sh", "-c", '"$@" 2>&- && echo went on', "sh", shutil.which("true") or "true"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={**os.environ, **environment("age=5")},
    )
    assert (done.returncode, done.stdout) == (0, "went on\n")


@pytest.mark.parametrize(
    ("ours", "separator"), [("first", ":"), ("middle", ":"), ("last", " "), ("twice", ":")]
)
def test_children_of_a_program_with_children_no(tmp_path: Path, ours: str, separator: str) -> None:
    """They have neither the library nor the settings, but everything else that was preloaded."""
    others = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        built = compile_program(folder, f"int {name};\n", "-shared", "-fPIC")
        others.append(str(built.rename(folder / f"lib{name}.so")))
    copy = str(shutil.copy2(LIBRARY, tmp_path / LIBRARY.name))
    entries = {
        "first": [str(LIBRARY), *others],
        "middle": [others[0], str(LIBRARY), others[1]],
        "last": [*others, str(LIBRARY)],
        "twice": [str(LIBRARY), others[0], copy, others[1]],
    }[ours]
    preload = separator.join(entries)
    # env shows what the shell passes on; the last line is what the shell's child has mapped.
    done = subprocess.run(
        ["sh", "-c", "env; cat /proc/self/maps | grep -o 'lib[a-z]*[.]so$' | sort -u"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={**os.environ, "LD_PRELOAD": preload, "GIVEBACK": f"{FIERCE},children=no"},
    )
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("GIVEBACK")] == []
    (passed_on,) = (line for line in lines if line.startswith("LD_PRELOAD="))
    assert passed_on.removeprefix("LD_PRELOAD=").replace(" ", ":").split(":") == others
    assert lines[-2:] == ["libone.so", "libtwo.so"]


def test_children_no_without_others_leaves_no_variable() -> None:
    done = subprocess.run(
        ["sh", "-c", "env"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={**os.environ, **environment("children=no")},
    )
    assert done.stderr == ""
    assert not [line for line in done.stdout.splitlines() if "giveback" in line.lower()]


def test_the_titles_of_a_process_are_its_own(program: Path) -> None:
    with resting(program, "rest", "6") as child:
        process = Path(f"/proc/{child.pid}")
        names = {
            int(task.name): (task / "comm").read_text().strip()
            for task in (process / "task").iterdir()
        }
        assert names.pop(child.pid) == "hazard_exits"
        assert list(names.values()) == ["giveback"]
        assert (process / "cmdline").read_bytes() == f"{program}\0rest\0006\0".encode()
        assert (process / "exe").readlink() == program
        # The engine's descriptors, if any, are not where programs expect the next of theirs.
        numbers = {int(file.name) for file in (process / "fd").iterdir()}
        assert {number for number in numbers if number < 50} == {0, 1, 2}
        output, errors = child.communicate("", SECONDS)
        assert (child.returncode, output, errors) == (6, "", "")
