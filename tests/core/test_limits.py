from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.core.clock import SECOND_US
from mulligan.core.groups import DOWNSTREAM, FAIR, KEY, group_of
from mulligan.core.job import LANES, Lane
from mulligan.core.limits import (
    TOKEN,
    Bucket,
    Ledger,
    Level,
    Limit,
    Scope,
    Slots,
    Terms,
    level_now,
    matters_without_group,
    scope_of,
    scopes_of,
    slots_text,
)
from tests.builders import bucket

NOW_US = 1_700_000_000 * SECOND_US
GROUPS = [
    None,
    group_of("a", None, None, None),
    group_of("b", "d", None, "k"),
    group_of(None, "d", None, "l"),
    group_of("a", None, "t", "k"),
]
LIMITS: list[Limit] = [
    Slots(most=2),
    Slots(most=1, lane="retry"),
    Slots(most=1, by_key=True),
    bucket("all", per_s=0.7, burst=3),
    bucket("retries", per_s=0.1, burst=2, ratio=0.25, lane="retry"),
    bucket("tenant", per_s=3, burst=2, part=FAIR),
    bucket("shut", burst=0, part=DOWNSTREAM, value="d"),
    bucket("key", per_s=5, burst=1, part=KEY),
]
BUCKETS = st.builds(
    Bucket, key=st.just("b"), rate_u=st.integers(0, 50 * TOKEN) | st.integers(1, 3), burst_u=st.integers(0, 5 * TOKEN), ratio_u=st.just(0)
)


def ledger(counts: dict[Scope, int] | None = None, levels: dict[str, Level] | None = None) -> Ledger:
    """What a store has read: by default that nothing runs, and no bucket was ever touched."""
    return Ledger(NOW_US, counts or {}, levels or {})


# -- Buckets over time ---------------------------------------------------------------------------------------------------


@given(BUCKETS, st.integers(0, 5 * TOKEN), st.lists(st.integers(-(10**6), 10**8), max_size=8))
def test_a_level_stays_in_its_bounds(bucket: Bucket, level_u: int, steps: list[int]) -> None:
    """Never above the burst; time that passes never takes anything out, and a clock that goes back brings nothing in."""
    stored, now_us = Level(min(level_u, bucket.burst_u), NOW_US), NOW_US
    for step_us in steps:
        now_us += step_us
        level_now_u = level_now(bucket, stored, now_us)
        assert stored.level_u <= level_now_u <= bucket.burst_u
        if now_us <= NOW_US:
            assert level_now_u == stored.level_u


def test_a_bucket_nobody_has_touched_is_full() -> None:
    """What counts is the burst of now, also after it was made smaller."""
    assert level_now(bucket(burst=7), None, NOW_US) == 7 * TOKEN
    assert level_now(bucket(burst=2), Level(7 * TOKEN, NOW_US), NOW_US) == 2 * TOKEN


CLAIMS = st.lists(st.tuples(st.integers(0, 3 * SECOND_US), st.integers(1, 4)), max_size=30)


def take(bucket: Bucket, levels: dict[str, Level], now_us: int, wanted: int) -> int:
    """One claim for so many jobs; how many it starts."""
    book, starts = Ledger(now_us, {}, levels), 0
    while starts < wanted and book.admits("q", "fresh", None, (bucket,)):
        book.charge("q", "fresh", None, (bucket,))
        starts += 1
    levels |= book.writes()
    return starts


@given(BUCKETS, CLAIMS)
def test_starts_never_exceed_what_flowed_in(bucket: Bucket, claims: list[tuple[int, int]]) -> None:
    """Claims at any times: the starts so far are at most the burst and what has flowed in."""
    levels: dict[str, Level] = {}
    now_us, starts = NOW_US, 0
    for step_us, wanted in claims:
        now_us += step_us
        starts += take(bucket, levels, now_us, wanted)
        assert starts * TOKEN <= bucket.burst_u + (now_us - NOW_US) * bucket.rate_u // SECOND_US
        assert all(level.level_u >= 0 for level in levels.values())


@given(st.integers(1, 20 * TOKEN), CLAIMS)
def test_hardly_anything_of_the_flow_is_lost(rate_u: int, claims: list[tuple[int, int]]) -> None:
    """However often it is looked at, an empty bucket that never runs over loses a millionth of a token with each write at most."""
    flowing = Bucket(key="b", rate_u=rate_u, burst_u=10**12)
    levels = {"b": Level(0, NOW_US)}
    now_us, starts = NOW_US, 0
    for step_us, wanted in claims:
        now_us += step_us
        starts += take(flowing, levels, now_us, wanted)
    left_u = level_now(flowing, levels["b"], now_us)
    assert starts * TOKEN + left_u >= (now_us - NOW_US) * rate_u // SECOND_US - len(claims)


@given(BUCKETS.filter(lambda one: one.rate_u > 0 and one.burst_u >= TOKEN), st.integers(0, TOKEN - 1), st.integers(0, 10**7))
def test_the_wait_for_a_token_is_exact(bucket: Bucket, level_u: int, ago_us: int) -> None:
    """After it there is a token; a microsecond before there is none."""
    stored = Level(level_u, NOW_US - ago_us)
    wait_us = ledger(levels={"b": stored}).wait_us("fresh", None, (bucket,))
    if wait_us is None:
        assert level_now(bucket, stored, NOW_US) >= TOKEN
        return
    assert level_now(bucket, stored, NOW_US + wait_us) >= TOKEN
    # The level of now is a whole number, so the wait may be told too long by what was cut off it.
    slack_us = -(-SECOND_US // bucket.rate_u)
    assert level_now(bucket, stored, NOW_US + wait_us - 1 - slack_us) < TOKEN


def test_there_is_no_time_for_what_does_not_flow() -> None:
    """A bucket without a flow, or one that can never hold a token, says nothing about when; of several the longest wait counts."""
    empty = {key: Level(0, NOW_US) for key in ("slow", "fast", "still", "small")}
    slow, fast = bucket("slow", per_s=0.5), bucket("fast", per_s=4)
    book = ledger(levels=empty)
    assert book.wait_us("fresh", None, (slow, fast)) == 2 * SECOND_US
    assert book.wait_us("fresh", None, (bucket("full"), fast)) == SECOND_US // 4
    assert book.wait_us("fresh", None, (bucket("still"), fast)) is None
    assert book.wait_us("fresh", None, (bucket("small", per_s=1, burst=0.5),)) is None
    assert book.wait_us("fresh", None, (bucket("fast", per_s=4, lane="retry"), Slots(most=0))) is None


# -- Whom a limit is for -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "group", "key"),
    [
        (bucket("b"), None, "b"),
        (bucket("b"), GROUPS[1], "b"),
        (bucket("b", part=FAIR), GROUPS[1], "b/a"),
        (bucket("b", part=FAIR), GROUPS[3], None),
        (bucket("b", part=FAIR), None, None),
        (bucket("b", part=DOWNSTREAM, value="d"), GROUPS[2], "b"),
        (bucket("b", part=DOWNSTREAM, value="e"), GROUPS[2], None),
        (bucket("b", part=DOWNSTREAM, value="d"), GROUPS[1], None),
    ],
)
def test_which_bucket_a_group_draws_from(given: Bucket, group: str | None, key: str | None) -> None:
    """One for all, one for a value, or one for each value; none for jobs that lack the part."""
    assert given.key_for(group) == key


@pytest.mark.parametrize(
    ("limits", "matters"),
    [
        ((), False),
        ((Slots(most=1, by_key=True),), False),
        ((Slots(most=1),), True),
        ((bucket(part=FAIR),), False),
        ((Slots(most=1, by_key=True), bucket(lane="retry")), True),
    ],
)
def test_whether_a_limit_is_for_jobs_without_a_group(limits: tuple[Limit, ...], matters: bool) -> None:
    """Those of a key, a tenant, a task or a downstream are not."""
    assert matters_without_group(limits) is matters


@given(st.lists(st.sampled_from(LIMITS), unique=True), st.sampled_from(LANES), st.sampled_from(GROUPS))
def test_slots_are_read_from_their_text(limits: list[Limit], lane: Lane, group: str | None) -> None:
    """A row's text names the same scopes and bounds as the limits it was claimed under."""
    text = slots_text(limits, lane, group)
    own = [limit for limit in limits if isinstance(limit, Slots) and limit.applies(lane, group)]
    expected = [(scope_of(limit, "q", group), limit.most) for limit in own]
    key = group.split("\x1f")[KEY] if group is not None else None
    assert (scopes_of(text, "q", key) if text is not None else []) == expected


@given(st.lists(st.sampled_from(LIMITS), unique=True), st.sampled_from(LANES), st.sampled_from(GROUPS))
def test_terms_are_the_limits_of_a_line(limits: list[Limit], lane: Lane, group: str | None) -> None:
    """Those that are for it, in their order; that of the other lane too, as far as its group draws from it."""
    own = [limit for limit in limits if (limit.applies(lane, group) if isinstance(limit, Slots) else limit.key_for(group) is not None)]
    assert list(Terms(limits).for_line(lane, group)) == own


# -- The ledger ----------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.sampled_from(LANES), st.sampled_from(GROUPS)), max_size=30),
    st.lists(st.sampled_from(LIMITS), unique=True),
    st.dictionaries(st.sampled_from(["all", "retries", "tenant/a", "key/k"]), st.integers(0, 2 * TOKEN)),
)
def test_what_is_admitted_keeps_every_limit(starts: list[tuple[Lane, str | None]], limits: list[Limit], levels_u: dict[str, int]) -> None:
    """Any starts, each only if it is admitted: no scope holds more than its slots, no bucket is overdrawn, and copies tell the same."""
    book = ledger(levels={key: Level(level_u, NOW_US) for key, level_u in levels_u.items()})
    taken: list[tuple[Lane, str | None]] = []
    for lane, group in starts:
        copy = book.copy()
        admitted = book.admits("q", lane, group, limits)
        assert copy.admits("q", lane, group, limits) == admitted
        copy.charge("q", lane, group, limits)
        assert book.admits("q", lane, group, limits) == admitted  # what a copy spends is not spent
        if admitted:
            book.charge("q", lane, group, limits)
            taken.append((lane, group))
    for slots in (limit for limit in limits if isinstance(limit, Slots)):
        scopes = [scope_of(slots, "q", group) for lane, group in taken if slots.applies(lane, group)]
        assert all(scopes.count(scope) <= slots.most for scope in scopes)
    assert all(level_u >= 0 for level_u in book.levels().values())
    assert all(level.at_us == NOW_US and level.level_u == book.levels()[key] for key, level in book.writes().items())


def test_only_what_was_taken_is_written() -> None:
    """A look at a bucket is no reason to write it."""
    book = ledger()
    limits = (bucket("looked", per_s=1), bucket("other", lane="retry", ratio=0.5, burst=2))
    assert book.admits("q", "fresh", None, limits)
    assert (book.levels(), book.writes()) == ({"looked": TOKEN}, {})
    book.charge("q", "retry", None, limits)
    book.charge("q", "fresh", None, limits[1:])
    assert book.writes() == {"looked": Level(0, NOW_US), "other": Level(round(1.5 * TOKEN), NOW_US)}


def test_fresh_starts_fill_the_bucket_of_retries_up_to_its_burst() -> None:
    """A ratio brings in its part with each start in the other lane; a bucket without one is left alone."""
    retries, plain = bucket("r", lane="retry", ratio=0.4, burst=1), bucket("p", lane="retry")
    book = ledger(levels={"r": Level(0, NOW_US), "p": Level(0, NOW_US)})
    for expected_u in (400_000, 800_000, TOKEN, TOKEN):
        book.charge("q", "fresh", None, (retries, plain))
        assert book.levels() == {"r": expected_u}
    assert book.admits("q", "retry", None, (retries,))
    assert not book.admits("q", "retry", None, (retries, plain))
