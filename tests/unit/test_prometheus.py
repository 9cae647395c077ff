"""The text format, as Prometheus's own parser reads it."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from giveback import _native, engine_stats, prometheus

COMM = 'we"ird\\name\n'


def stats(**changed: Any) -> engine_stats.Stats:
    fields = {field.name: 7 for field in dataclasses.fields(engine_stats.Stats)}
    words = {"state": "runs", "reason": None, "remedy": None, "policy": "trim"}
    words |= {"release_error": None, "kernel_path": "madvise", "residency": "none"}
    values: dict[str, Any] = fields | words | {"refused": {'it is "so"': 3}}
    return engine_stats.Stats(**(values | changed))


def test_prometheus_reads_it() -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    text = prometheus.exposition(42, COMM, stats(returned=10**15 + 1, hold_ns=1_500_000_000))
    families = {f.name: f for f in parser.text_string_to_metric_families(text)}
    assert families["giveback_returned_bytes"].type == "counter"
    samples = {}
    for found in families.values():
        assert found.documentation
        for sample in found.samples:
            assert sample.labels["pid"] == "42"
            assert sample.labels["comm"] == COMM
            samples[sample.name] = sample.value
    assert samples["giveback_returned_bytes_total"] == 10**15 + 1
    assert samples["giveback_hold_seconds_sum"] == pytest.approx(1.5)
    assert samples["giveback_hold_seconds_count"] == 7
    refused = families["giveback_refused"].samples[0]
    assert (refused.labels["reason"], refused.value) == ('it is "so"', 3)


def test_names_and_units() -> None:
    kinds = {}
    for line in prometheus.exposition(1, "x", stats()).splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            kinds[name] = kind
            assert name.startswith("giveback_")
            assert not name.endswith(("_ns", "_ms"))
    assert all((kind == "counter") == name.endswith("_total") for name, kind in kinds.items())


def test_the_file_is_replaced_at_once_and_readable_by_others(tmp_path: Path) -> None:
    file = tmp_path / "giveback.prom"
    file.write_text("old")
    held = file.open()
    umask = os.umask(0o022)
    try:
        prometheus.write(file, "new\n")
    finally:
        os.umask(umask)
    with held:
        assert held.read() == "old", "who reads the old file goes on reading that"
    assert file.read_text() == "new\n"
    assert file.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["giveback.prom"]


def test_nothing_is_left_where_it_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "folder.prom").mkdir()
    with pytest.raises(OSError, match="regular file"):
        prometheus.write(tmp_path / "folder.prom", "new\n")
    assert [path.name for path in tmp_path.iterdir()] == ["folder.prom"]


def test_a_raw_page_becomes_words() -> None:
    _, raw = _native.engine_stats()
    raw |= {"state": _native.ENGINE_REFUSES, "reason": _native.SANDBOX, "release_errno": 12}
    raw["refused"] = {_native.BUSY: 2, 47: 1}
    found = engine_stats.from_raw(raw)
    assert found.state == "refuses"
    assert found.reason == _native.status_words(_native.SANDBOX)[0]
    assert found.release_error == "Cannot allocate memory"
    assert sorted(found.refused.values()) == [1, 2]
    assert found.to_dict()["policy"] == "background"
