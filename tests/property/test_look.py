"""Looks at synthetic arenas: right figures for whatever is sound, bounded time for the rest."""

from __future__ import annotations

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from giveback import _native, _testing

from .images import HEAP_MAX, LAYOUTS, NON_MAIN, PAGE, PREV_INUSE, Image, Layout, bin_of

FOREVER = 10**9
OUTCOMES_THAT_REFUSE = {
    _native.DOUBT_ARENA,
    _native.DOUBT_HEAP,
    _native.DOUBT_TOP,
    _native.DOUBT_LINK,
    _native.DOUBT_CHUNK,
}
SECONDS_FOR_ANY_IMAGE = 2

chunk_sizes = st.one_of(
    st.integers(2, 64), st.integers(2, 700), st.integers(250, 3000), st.integers(3000, 40000)
).map(lambda units: units * 16)
plans = st.lists(
    st.tuples(
        st.sampled_from(["free", "unsorted", "oldest", "live", "fast"]),
        chunk_sizes,
    ),
    max_size=120,
)
slow = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def build(layout: Layout, plan: list[tuple[str, int]], protected: bool = True) -> Image:
    image = Image(layout, 32 << 20)
    for kind, size in plan:
        if size + 64 > image.room():
            break
        image.live(48)
        if kind == "free":
            image.free(size, bin_of(size))
        elif kind == "unsorted":
            image.free(size, 1)
        elif kind == "oldest":
            image.free(size, 1, at_front=False)
        elif kind == "fast" and layout.fastbins:
            image.fast(32 + size % 7 * 16, protected)
        else:
            image.live(size)
    image.finish()
    return image


def look(image: Image, hold_ns: int) -> tuple[int, dict[str, int], list[tuple[int, int]]]:
    status, figures, spans = _testing.look(
        image.arena, False, image.layout.bins, image.layout.heap_header, hold_ns, 10**8
    )
    assert image.read(image.arena) & 0xFFFFFFFF == 0, "the lock must be free afterwards"
    return status, figures, spans


@slow
@given(st.sampled_from(LAYOUTS), plans, st.sampled_from([0, FOREVER]), st.booleans())
def test_figures_of_sound_arenas(
    layout: Layout, plan: list[tuple[str, int]], hold_ns: int, protected: bool
) -> None:
    image = build(layout, plan, protected)
    try:
        status, figures, spans = look(image, hold_ns)
        assert status == _native.OK
        expected = image.expected
        assert figures["bins_chunks"] == expected.chunks
        assert figures["bins_bytes"] == expected.bytes
        assert figures["fastbins_chunks"] == expected.fast_chunks
        assert figures["fastbins_bytes"] == expected.fast_bytes
        assert figures["top_bytes"] == image.heap + image.heap_bytes - image.top
        assert set(spans) == set(expected.spans)  # strands that are dropped deliver some twice
        assert figures["settled"]
        assert figures["complete"]
    finally:
        image.close()


interesting_words = st.one_of(
    st.integers(0, 2**64 - 1),
    st.sampled_from(
        [0, 1, 15, 16, 17, 31, 33, 2**63 - 15, 2**63, 2**63 + 17, 2**64 - 31, 2**64 - 1]
    ),
)


@slow
@given(
    layout=st.sampled_from(LAYOUTS),
    plan=plans,
    hold_ns=st.sampled_from([0, FOREVER]),
    data=st.data(),
)
def test_damaged_arenas_end_in_bounded_time_and_never_crash(
    layout: Layout, plan: list[tuple[str, int]], hold_ns: int, data: st.DataObject
) -> None:
    """Words of chunks, list heads and arena fields are replaced by anything at all.

    A look may call the arena sound only if what it counted is what it could count: never more than
    the heap holds, and no page outside of it.
    """
    image = build(layout, plan)
    try:
        places = [image.arena + offset for offset in range(8, layout.size, 8)]
        places += [image.heap + offset for offset in range(0, layout.heap_header, 8)]
        for chunk in image.chunks:
            places += [chunk + offset for offset in (0, 8, 16, 24)]
        places.append(image.top + 8)
        inside = st.sampled_from([image.arena, image.heap, image.top, *image.chunks]).flatmap(
            lambda address: st.sampled_from([0, 8, 16, -16, 32, 4096]).map(lambda o: address + o)
        )
        for _ in range(data.draw(st.integers(1, 6))):
            place = data.draw(st.sampled_from(places))
            image.write(place, data.draw(st.one_of(interesting_words, inside)))
        started = time.monotonic()
        status, figures, spans = look(image, hold_ns)
        assert time.monotonic() - started < SECONDS_FOR_ANY_IMAGE
        assert status in OUTCOMES_THAT_REFUSE | {_native.OK, 3}  # 3: mapped after the snapshot
        if status == _native.OK:
            assert figures["bins_bytes"] + figures["fastbins_bytes"] <= figures["system_bytes"]
        for start, end in spans:
            assert image.heap < start < end <= image.heap + HEAP_MAX
            assert start % PAGE == end % PAGE == 0
    finally:
        image.close()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_chunks_that_only_look_free_are_not_followed(layout: Layout) -> None:
    """A live block whose content imitates a free chunk, linked to by nobody."""
    image = Image(layout, 4 << 20)
    image.live(48)
    real = image.free(40960, 1)
    fake = image.live(40960)
    head = image.bin_head(1)
    image.write(fake + 32, 0, 20480 | PREV_INUSE, head, real)
    image.write(fake + 32 + 20480, 20480, 64 | NON_MAIN)
    image.finish()
    try:
        status, figures, spans = look(image, 0)
        assert status == _native.OK
        assert figures["bins_chunks"] == 1
        assert all(end <= fake or start >= fake + 40960 for start, end in spans)
    finally:
        image.close()


@given(st.integers(2, 2**40).map(lambda units: units * 16))
def test_bins_are_those_of_the_model(size: int) -> None:
    assert _testing.bin_of_size(size) == bin_of(size)
