"""Parsing of /proc, against this very process."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from giveback import _testing
from giveback.errors import ProcessError
from giveback.remote import objects, process


def test_both_parsers_of_maps_agree() -> None:
    ours = {(mapping.start, mapping.end) for mapping in process.read_maps(os.getpid())}
    natives = {(start, end) for start, end, *_ in _testing.maps()}
    # Each may allocate while it reads; nearly all mappings are the same.
    assert len(ours & natives) >= 0.9 * max(len(ours), len(natives))


def test_a_mapping_of_a_file() -> None:
    libc = next(m for m in process.read_maps(os.getpid()) if objects.is_libc(m.path))
    assert libc.is_file
    assert Path(libc.path).exists()
    assert not libc.deleted


def test_status_and_environment() -> None:
    assert process.status_fields(os.getpid())["Pid"] == str(os.getpid())
    assert process.environment(os.getpid())["PATH"]


def test_what_is_gone() -> None:
    for read in (process.read_maps, process.status_fields, process.environment):
        with pytest.raises(ProcessError, match="no process 2147483647"):
            read(2**31 - 1)
    with pytest.raises(ProcessError, match="no process"), process.memory(2**31 - 1):
        pass


def test_the_allocator_of_this_process() -> None:
    found = objects.find_allocator(os.getpid())
    assert found.name == "glibc"
    assert not found.static
    assert found.libcs == 1
    assert re.fullmatch(r"2\.\d+", found.libc_version or "")
    assert found.data is not None
    start, end = found.data
    assert start < end


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/lib/x86_64-linux-gnu/libc.so.6", True),
        ("/lib/libc-2.31.so", True),
        ("/lib/libc++.so.1", False),
        ("/lib/libcrypt.so.1", False),
        ("/usr/lib/libc-client.so.2007e", False),
    ],
)
def test_names_of_libc(path: str, expected: bool) -> None:
    assert objects.is_libc(path) is expected
