"""The Lua ports of core/limits and core/choosing answer as the originals do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import redis
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from mulligan.core.choosing import Line, Waiting, choose, has_groups, needs, next_after
from mulligan.core.contract import Ask
from mulligan.core.groups import DOWNSTREAM, FAIR, KEY, group_of
from mulligan.core.job import LANES
from mulligan.core.limits import TOKEN, Bucket, Ledger, Level, Limit, Scope, Slots, level_now, slots_text
from mulligan.stores.redis.claim import _ask_row
from mulligan.stores.redis.scripts import lua
from tests.builders import bucket
from tests.servers import server_url

NOW_US = 1_800_000_000_000_000
FILES = "\n".join(lua(name) for name in ("prelude", "keys", "rows", "allot", "limits", "choosing"))
LEVELS = f"""{FILES}
local answers = {{}}
for i, one in ipairs(decode(ARGV[2])) do
  answers[i] = level_at(now, {{rate = one[1], burst = one[2]}}, one[3] and {{one[3], one[4]}} or nil)
end
return answers"""
CHOOSE = f"""{FILES}
local total, asks, lines, counts, levels = unpack(decode(ARGV[2]))
for i, given in ipairs(asks) do
  asks[i] = {{queue = given[1], lane = given[2], priority = given[3], guaranteed = given[4], limits = given[6], after = given[7]}}
  for j, line in ipairs(lines[i]) do
    local jobs, group = {{}}, line[2] or nil
    for k, job in ipairs(line[3]) do jobs[k] = {{at = job[1], id = job[2]}} end
    lines[i][j] = {{queue = given[1], lane = line[1], group = group, jobs = jobs, is_cut = line[4], is_within = line[5],
      terms = terms_of(given[6], given[1], line[1], group)}}
  end
end
local ledger = new_ledger(now, function(term) return counts[term.scope] or 0 end, function(name) return levels[name] end)
local choice = choose(total, asks, lines, ledger)
local jobs, left = {{}}, {{}}
for i, entry in ipairs(choice.jobs) do
  jobs[i] = {{entry.ask - 1, entry.id, slots_text(entry.line.terms) or ''}}
  charge(ledger, entry.line.terms)
end
for name, level in pairs(ledger.levels) do left[#left + 1] = {{name, level}} end
return {{jobs, choice.held_back, choice.wait or -1, choice.has_more and 1 or 0, choice.turns, left}}"""

PARTS = [("a", None, None, None), ("a", "d", None, None), ("b", None, "t", "k"), (None, "d", None, "k"), ("a b", None, None, None)]
PARTS += [("a\x01", None, None, "l")]  # stands before "a", because its group does
GROUPS = [None, group_of("ä", None, None, "l"), *(group_of(*parts) for parts in PARTS)]
LIMITS: list[Limit] = [
    Slots(most=2),
    Slots(most=3, lane="fresh"),
    Slots(most=1, by_key=True),
    Slots(most=2, lane="retry", by_key=True),
    bucket("all", per_s=0.7, burst=3),
    bucket("other", burst=0.5),
    bucket("retries", per_s=1 / 3, burst=2, ratio=0.25, lane="retry"),
    bucket("tenant", per_s=3, burst=2, part=FAIR),
    bucket("shut", burst=0, part=DOWNSTREAM, value="d"),
    bucket("key", per_s=5, burst=1, part=KEY),
]
SCOPES = [Scope(queue, lane, key) for queue in "qr" for lane in (None, *LANES) for key in (None, "k", "l")]
BUCKETS = ["all", "other", "retries", "tenant/a", "tenant/ä", "shut", "key/k"]

some_limits = st.lists(st.sampled_from(LIMITS), max_size=3, unique=True).map(tuple)
asks_of_any_kind = st.builds(
    Ask,
    queue=st.sampled_from("qr"),
    lane=st.sampled_from([None, "fresh", "retry"]),
    priority=st.just(0),
    guaranteed=st.integers(-1, 6),
    limits=some_limits,
    after=st.sampled_from(["", "a ", "a\x01 ", "a\x1f\x1f\x1f", "b ", "zz"]),
)
ids = st.integers(1, 60).map(lambda number: f"id-{number * 7 % 61:02}")
jobs_of_a_line = st.lists(st.tuples(st.integers(1, 5), ids), max_size=8, unique_by=lambda job: job[1]).map(sorted)
lines_of_an_ask = st.lists(
    st.tuples(st.sampled_from(LANES), st.sampled_from(GROUPS), jobs_of_a_line, st.booleans(), st.booleans()),
    max_size=6,
    unique_by=lambda line: line[:2],
)


def run(script: str, given: Any) -> Any:
    """The script's answer."""
    with redis.Redis.from_url(server_url("redis")) as client:
        return client.eval(script, 2, "{t}:epoch", "{t}:beat", str(NOW_US), msgspec.msgpack.encode(given))


def scope_text(scope: Scope) -> str:
    """How the script names a scope."""
    return f"{len(scope.queue)}:{scope.queue}:{scope.lane or ''}{'' if scope.key is None else ':' + scope.key}"


def alone(lines: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """The lines with each job only once in an ask, as a store lists them."""
    answers = []
    for own in lines:
        seen: set[str] = set()
        found = []
        for lane, group, jobs, *cut in own:
            found.append((lane, group, [job for job in jobs if job[1] not in seen], *cut))
            seen |= {job[1] for job in jobs}
        answers.append(found)
    return answers


big = st.one_of(st.integers(0, 5 * TOKEN), st.integers(0, 2**53 - 1))
stored_levels = st.tuples(big, st.one_of(st.integers(NOW_US - 10**7, NOW_US + 10**7), st.integers(0, 2**52)))
any_bucket = st.tuples(big, big, st.none() | stored_levels)
# So that what flows in is less than the room there is, and greater than what one multiplication would get right.
fast_bucket = st.tuples(
    st.integers(2**46, 2**51), st.just(2**53 - 1), st.tuples(st.integers(0, TOKEN), st.integers(NOW_US - 3_000_000, NOW_US - 1_000))
)


@given(st.lists(any_bucket | fast_bucket, min_size=1, max_size=40))
def test_levels_are_those_of_the_model(buckets: list[tuple[int, int, tuple[int, int] | None]]) -> None:
    """Also where the product of time and rate is greater than a double holds exactly."""
    expected = [
        level_now(Bucket(key="b", rate_u=rate_u, burst_u=burst_u), None if stored is None else Level(*stored), NOW_US)
        for rate_u, burst_u, stored in buckets
    ]
    assert run(LEVELS, [(rate_u, burst_u, *(stored or (False, False))) for rate_u, burst_u, stored in buckets]) == expected


@settings(max_examples=max(300, settings().max_examples))
@given(
    total=st.integers(1, 12),
    wanted=st.lists(st.tuples(asks_of_any_kind, lines_of_an_ask), min_size=1, max_size=4),
    shared=some_limits,
    counts=st.dictionaries(st.sampled_from(SCOPES), st.integers(0, 3)),
    levels=st.dictionaries(st.sampled_from(BUCKETS), st.tuples(st.integers(0, 3 * TOKEN), st.integers(NOW_US - 10**6, NOW_US))),
)
def test_choices_are_those_of_the_model(
    total: int,
    wanted: list[tuple[Ask, list[Any]]],
    shared: tuple[Limit, ...],
    counts: dict[Scope, int],
    levels: dict[str, tuple[int, int]],
) -> None:
    """Any asks, lines, counts and levels: the same jobs in the same order, obstacles, turns and levels."""
    asks = [replace(ask, limits=tuple(dict.fromkeys(ask.limits[:1] + shared))) for ask, _ in wanted]
    found = alone([lines for _, lines in wanted])
    lines = [[Line(lane, group, [Waiting(*job) for job in jobs], *cut) for lane, group, jobs, *cut in own] for own in found]
    needed, _ = needs(asks, lines)
    ledger = Ledger(NOW_US, {scope: counts.get(scope, 0) for scope in needed}, {key: Level(*level) for key, level in levels.items()})
    choice = choose(total, asks, lines, ledger)
    for one in choice.jobs:
        ledger.charge(asks[one.ask].queue, one.line.lane, one.line.group, asks[one.ask].limits)
    told = [[(lane, group or False, *rest) for lane, group, *rest in own] for own in found]
    answer = run(
        CHOOSE, (total, [_ask_row(ask) for ask in asks], told, {scope_text(scope): count for scope, count in counts.items()}, levels)
    )
    jobs, held_back, wait_us, has_more, turns, left = answer
    slots = [slots_text(asks[one.ask].limits, one.line.lane, one.line.group) or "" for one in choice.jobs]
    assert [(ask, job_id.decode(), text.decode()) for ask, job_id, text in jobs] == [
        (one.ask, one.job.id, text) for one, text in zip(choice.jobs, slots, strict=True)
    ]
    assert {queue.decode() for queue in held_back} == choice.held_back
    assert (wait_us, bool(has_more)) == (-1 if choice.wait_us is None else choice.wait_us, choice.has_more)
    assert [turn.decode() for turn in turns] == (next_after(asks, lines, choice) if has_groups(lines) else [])
    assert {key.decode(): level_u for key, level_u in left} == ledger.levels()
