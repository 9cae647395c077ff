"""The view against each glibc's own figures, in real programs that run on that glibc."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import glibcs
import pytest
from support.children import ask_heap_child


def total(answer: dict[str, Any], *names: str) -> int:
    return sum(arena[name] for arena in answer["arenas"] for name in names)


@pytest.mark.parametrize("shape", glibcs.SHAPES)
@pytest.mark.parametrize("version", glibcs.SUITES)
def test_figures_equal_mallinfo_and_malloc_info(version: str, shape: str) -> None:
    answer = ask_heap_child(version, shape, "compare")
    assert answer["status"] == 0
    assert {arena["text"] for arena in answer["arenas"]} == {"done"}
    assert all(arena["settled"] and arena["complete"] for arena in answer["arenas"])
    assert answer["verdict"] in ("equal", "too large")

    # Whatever the number of chunks: mallinfo, asked right after the account.
    ours = {
        "arena": total(answer, "system"),
        "ordblks": total(answer, "chunks") + len(answer["arenas"]),
        "smblks": total(answer, "fast_chunks"),
        "fsmblks": total(answer, "fast"),
        "fordblks": total(answer, "bins", "fast", "top"),
        "keepcost": answer["arenas"][0]["top"],
    }
    assert ours == answer["glibc"]

    # malloc_info prints one heap an arena, in the order of the ring.
    info = ET.fromstring(answer["malloc_info"])
    heaps = info.findall("heap")
    assert len(heaps) == len(answer["arenas"])
    for heap, arena in zip(heaps, answer["arenas"], strict=True):
        totals = {kind.get("type"): kind for kind in heap.findall("total")}
        system = {kind.get("type"): kind for kind in heap.findall("system")}
        # "rest" is what is in bins and the top chunk. malloc_info adds up the raw size words of the
        # former, whose lowest bit is set: a byte too much a chunk.
        if "fast" in totals:
            assert int(totals["fast"].get("count", -1)) == arena["fast_chunks"]
            assert int(totals["fast"].get("size", -1)) == arena["fast"]
        else:  # glibc 2.43 on has no fastbins
            assert arena["fast_chunks"] == 0
        assert int(totals["rest"].get("count", -1)) == arena["chunks"] + (arena["top"] > 0)
        rest = arena["bins"] + arena["chunks"] + arena["top"]
        assert int(totals["rest"].get("size", -1)) == rest
        assert int(system["current"].get("size", -1)) == arena["system"]
        assert int(system["max"].get("size", -1)) == arena["max_system"]
    mmapped = next(kind for kind in info.findall("total") if kind.get("type") == "mmap")
    if answer["parameters"]["known"]:
        assert int(mmapped.get("count", -1)) == answer["parameters"]["mmapped_chunks"]
        assert int(mmapped.get("size", -1)) == answer["parameters"]["mmapped_bytes"]
    else:
        assert shape == "noncontiguous"


@pytest.mark.parametrize("shape", [shape for shape in glibcs.SHAPES if shape != "arenas300"])
@pytest.mark.parametrize("version", glibcs.SUITES)
def test_predicted_release_is_what_malloc_trim_releases(version: str, shape: str) -> None:
    answer = ask_heap_child(version, shape, "predict")
    assert answer["status"] == 0
    drop = answer["rss_before"] - answer["rss_after"]
    assert abs(drop - answer["predicted"]) <= 4096
    assert answer["left"] <= 4096


@pytest.mark.parametrize("source", [1, 2], ids=["pagemap", "mincore"])
def test_other_sources_of_residency_predict_the_same(source: int) -> None:
    answer = ask_heap_child("2.36", "spike", "predict", "200", str(source))
    assert answer["source"] == ["PAGEMAP_SCAN", "pagemap", "mincore"][source]
    drop = answer["rss_before"] - answer["rss_after"]
    assert abs(drop - answer["predicted"]) <= 4096


@pytest.mark.parametrize("shape", ["holes", "holes-shuffled", "million", "million-fast"])
@pytest.mark.parametrize("version", ["2.36", "2.44"])
def test_holds_of_any_length_count_the_same(version: str, shape: str) -> None:
    """Positions kept across a thousand holds lose and double nothing."""
    one = ask_heap_child(version, shape, "account", "10000000")
    many = ask_heap_child(version, shape, "account", "100")
    assert total(one, "holds") < 20  # a hold ends, too, when it has found 8192 spans of pages
    assert total(many, "holds") > 2 * total(one, "holds")
    for name in ("chunks", "bins", "fast_chunks", "fast", "top", "system"):
        assert total(one, name) == total(many, name)
    assert all(arena["settled"] and arena["complete"] for arena in many["arenas"])


@pytest.mark.parametrize("version", glibcs.SUITES)
def test_tunables_do_not_confuse_it(version: str) -> None:
    """No tcache, another brk alignment (2.31), madvised huge pages (from 2.35 on)."""
    for tunables in (
        "glibc.malloc.tcache_count=0",
        "glibc.malloc.tcache_max=4194304",
        "glibc.malloc.hugetlb=1",
        "glibc.malloc.arena_max=2",
        "glibc.malloc.mxfast=0",
        "glibc.malloc.perturb=85",
    ):
        answer = ask_heap_child(version, "threads", "compare", GLIBC_TUNABLES=tunables)
        assert answer["status"] == 0, tunables
        assert answer["verdict"] == "equal", tunables


@pytest.mark.parametrize("version", ["2.36", "2.41", "2.43", "2.44"])
def test_explicit_huge_pages_are_refused(version: str) -> None:
    answer = ask_heap_child(version, "threads", "account", GLIBC_TUNABLES="glibc.malloc.hugetlb=2")
    assert "huge pages" in answer["text"]
    assert answer["arenas"] == []
