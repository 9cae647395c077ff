"""Budgets, ages, batches and turns: properties over whole histories, with the clock in the test."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from giveback import _testing

SECOND = 10**9
MINUTE = 60 * SECOND
MILLION = 10**6
AGE = 250 * 10**6
SKIP, WAIT, QUIET, OLD = range(4)
AGE_MOST = 30 * SECOND
FEEDBACK = 256 << 10

shares = st.integers(100, MILLION)


# ---- CPU ------------------------------------------------------------------------------


@given(shares, st.lists(st.tuples(st.integers(0, 5 * SECOND), st.integers(0, SECOND)), max_size=80))
def test_who_keeps_to_the_budget_uses_its_share_and_one_burst(
    ppm: int, steps: list[tuple[int, int]]
) -> None:
    """Spending only when the budget says so never exceeds share x time + burst + the last step."""
    now = spent = last = 0
    history: list[tuple[int, int]] = []
    for passed, cost in steps:
        now += passed
        wait = _testing.budget(ppm, [*history, (passed, 0)])[-1]
        if wait == 0:
            history.append((passed, cost))
            spent += cost
            last = cost
        else:
            history.append((passed, 0))
        burst = MINUTE * ppm // MILLION
        assert spent <= now * ppm // MILLION + burst + last + 1


@given(shares, st.integers(0, 10 * MINUTE))
def test_a_wait_is_enough_and_not_much_too_long(ppm: int, cost: int) -> None:
    wait = _testing.budget(ppm, [(0, cost)])[-1]
    if wait > 0:
        after = _testing.budget(ppm, [(0, cost), (wait, 0)])
        assert after[-1] == 0
        before = _testing.budget(ppm, [(0, cost), (wait - wait // 100 - 2 * MILLION // ppm - 2, 0)])
        assert before[-1] > 0 or wait < 1000 * MILLION // ppm


@given(shares)
def test_one_odd_figure_does_not_silence_for_ever(ppm: int) -> None:
    wait = _testing.budget(ppm, [(0, 2**62)])[-1]
    assert wait <= 3 * MINUTE


@given(st.integers(1000, MILLION), st.integers(0, SECOND))
def test_duty_is_the_share_of_time(ppm: int, held: int) -> None:
    pause = _testing.duty(ppm, held)
    assert abs(held * MILLION - ppm * (held + pause)) <= ppm


# ---- age ------------------------------------------------------------------------------

feedback = st.lists(
    st.integers(0, 1 << 32).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), max_size=40
)


@given(st.integers(10**6, 3600 * SECOND), feedback)
def test_age_stays_between_what_was_set_and_the_limit(
    base: int, steps: list[tuple[int, int]]
) -> None:
    before = base
    for (released, refaulted), age in zip(steps, _testing.age(base, steps), strict=True):
        assert base <= age <= max(base, AGE_MOST)
        if released < FEEDBACK:
            assert age == before
        elif refaulted * 2 > released + 1:
            assert age == min(before * 2, max(base, AGE_MOST))
        elif refaulted < released // 8:
            assert age == max(before // 2, base)
        else:
            assert age == before
        before = age


# ---- batches ----------------------------------------------------------------------------

TARGET = 60_000
MOST_BYTES = 576 << 10


@given(st.integers(0, 20_000), st.integers(0, 30_000), st.integers(0, 2_000), st.integers(1, 200))
def test_batches_settle_at_what_the_target_allows(
    fixed: int, a_range: int, a_page: int, pages_a_range: int
) -> None:
    """On a kernel of constant costs, batches neither stay too large nor needlessly small."""
    batches = _testing.batch(TARGET, fixed, a_range, a_page, pages_a_range, 200)
    smallest = fixed + 2 * a_range + max(16, pages_a_range) * a_page
    for ranges, size, _ in batches:
        assert 1 <= ranges <= 256
        assert 0 < size <= MOST_BYTES
    for ranges, size, cost in batches[100:]:
        assert cost <= max(TARGET * 3 // 2, smallest)
        full = ranges == 256 or size >= MOST_BYTES // 2 or cost > TARGET // 2
        single = pages_a_range * 4096 * 4 >= size  # whole ranges do not fit better
        assert full or single or ranges <= 3


# ---- pace ---------------------------------------------------------------------------------


@given(
    st.integers(10**6, 3600 * SECOND),
    st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1),
)
def test_a_spike_is_noticed_within_a_second(age: int, steps: list[tuple[bool, bool]]) -> None:
    base = min(age, SECOND)
    before = base
    for (changed, waiting), interval in zip(steps, _testing.pace(age, steps), strict=True):
        assert base <= interval <= SECOND
        assert interval == (base if changed or waiting else min(before * 2, SECOND))
        before = interval


# ---- turns: which page goes when -------------------------------------------------------------

# In an arena at work only a MiB and more is worth it: whole runs of that.
RUN = 260
runs = st.lists(st.integers(1, 40), unique=True, max_size=5).map(sorted)
pages = runs.map(lambda numbers: [RUN * n + i for n in numbers for i in range(RUN)])
histories = st.lists(
    st.tuples(st.integers(1, 700 * 10**6), st.integers(0, 2), pages), min_size=1, max_size=25
)


@given(histories)
def test_no_page_goes_before_it_was_seen_free_for_the_age(
    history: list[tuple[int, int, list[int]]],
) -> None:
    """A page is wanted if two looks an age apart saw it, or if all has been quiet for as long."""
    now, steps = SECOND, []
    for passed, fingerprint, free in history:
        now += passed
        steps.append((now, fingerprint, free))
    turns = _testing.turns(AGE, steps)
    looks: list[tuple[int, set[int]]] = []
    quiet_since, last = 0, -1
    for (at, fingerprint, free), (turn, wanted) in zip(steps, turns, strict=True):
        if fingerprint != last:
            quiet_since, last = at, fingerprint
        if turn in (SKIP, WAIT):
            assert wanted == []
            continue
        if turn == QUIET:
            assert at - quiet_since >= AGE
            assert wanted == free
        else:
            assert set(wanted) <= set(free)
            if wanted:
                before, seen = looks[-1]
                assert at - before >= AGE
                assert set(wanted) <= seen
        looks.append((at, set(free)))


def test_a_quiet_arena_is_looked_at_once_and_then_left_alone() -> None:
    step = AGE // 2
    steps = [(SECOND + i * step, 7, [1, 2, 3]) for i in range(20)]
    turns = [turn for turn, _ in _testing.turns(AGE, steps)]
    assert turns == [WAIT, WAIT, QUIET] + [SKIP] * 17


def test_a_change_makes_it_come_again() -> None:
    steps = [(SECOND + i * AGE, 7 if i < 10 else 8, [1, 2, 3]) for i in range(14)]
    turns = _testing.turns(AGE, steps)
    assert [turn for turn, _ in turns[2:10]] == [SKIP] * 8
    assert turns[10][0] == OLD
    assert QUIET in [turn for turn, _ in turns[11:]]


def test_what_was_out_of_reach_is_tried_again_ever_later_and_not_for_ever() -> None:
    steps = [(SECOND + i * AGE, 7, [1, 2, 3], False) for i in range(300)]
    turns = [turn for turn, _ in _testing.turns(AGE, steps)]
    tries = [i for i, turn in enumerate(turns) if turn == QUIET]
    gaps = [after - before for before, after in itertools.pairwise(tries)]
    assert gaps == [2, 4, 8, 16, 32, 64]
    assert turns[-1] == SKIP

    once = [(*step[:3], i > tries[1]) for i, step in enumerate(steps)]
    assert [turn for turn, _ in _testing.turns(AGE, once)].count(QUIET) == 3


@pytest.mark.parametrize(("free", "first"), [(range(1, 1001), 2), (range(1, 2001, 2), 10)])
def test_pages_that_stand_alone_are_put_off_for_some_looks(free: range, first: int) -> None:
    """In an arena that changes all the time; two looks must see them in any case."""
    steps = [(SECOND + i * AGE, i, list(free)) for i in range(12)]
    turns = _testing.turns(AGE, steps)
    assert [turn for turn, _ in turns] == [WAIT] + [OLD] * 11
    assert [bool(wanted) for _, wanted in turns].index(True) == first
    assert turns[first][1] == list(free)


# ---- figures ----------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 10**10), min_size=1, max_size=300), st.floats(0.01, 1))
def test_percentiles_are_right_within_an_eighth(holds: list[int], share: float) -> None:
    answer = _testing.percentile(holds, share)
    ordered = sorted(holds)
    rank = max(0, -int(-share * len(holds) // 1) - 1)
    exact = ordered[min(rank, len(holds) - 1)]
    assert exact <= max(answer, 1000)
    assert answer <= max(exact * 9 // 8 + 1, 1000)


BLOCK = 16384
"""Pages of one block of a set: a run that crosses its border counts as two."""
sets = st.one_of(
    st.lists(st.integers(1, 70000), unique=True, max_size=60),
    st.lists(st.integers(BLOCK - 80, BLOCK + 80), unique=True, max_size=160),
)


@given(sets, sets, st.integers(1, 70000), st.integers(0, 40000))
def test_page_sets_are_sets(left: list[int], right: list[int], start: int, count: int) -> None:
    both, either, without, cut, runs = _testing.page_sets(left, right, start, start + count)
    assert both == sorted(set(left) & set(right))
    assert either == sorted(set(left) | set(right))
    assert without == sorted(set(left) - set(right))
    assert cut == sorted(page for page in left if not start <= page < start + count)
    assert runs == sum(page - 1 not in set(left) or page % BLOCK == 0 for page in left)
