"""Circuit breakers: when calls to a downstream are better not made, and how it is tried again. Pure; what is known is in the state.

    closed ── too many calls fail ──▶ open ── its time is over ──▶ half_open ── probes succeed ──▶ closing ── the ramp is over ──▶ closed
                                       ▲                               │ a probe fails               │ too many calls fail
                                       └───── for twice as long ───────┴─────────────────────────────┘

The whole fleet shares one state per downstream, as a note in the store. What a state allows is a bucket (core/limits), which the store
keeps inside the claim; so a held-back job stays pending and spends no attempt, and a fleet of any size sends one probe at a time.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from mulligan.core.clock import SECOND_US
from mulligan.core.errors import BadPolicy, BadSetting
from mulligan.core.events import EventKind
from mulligan.core.groups import DOWNSTREAM
from mulligan.core.limits import TOKEN, Bucket
from mulligan.policy.checks import checked_count, checked_number, span

Phase = Literal["closed", "open", "half_open", "closing"]

SLOTS = 10  # parts of the window that are counted apart; it moves on by one of them at a time
DOUBLINGS = 10  # of the allowed rate while closing: in the end it is a thousandfold
CLOSING_BURST_S = 0.25  # while closing, what may come at once is what flows in within this time
RATE_U_MAX = 1_000_000 * TOKEN
RETRY_AFTER_MAX_US = 3_600 * SECOND_US  # a downstream's word holds everybody for no longer than this
CLOCK_SLACK_US = 60 * SECOND_US  # workers estimate the store's time; a change further ahead than this was made before the clock went back
DAY_S = 86_400
_LONGEST_DOUBLINGS = 40
_KEY_PREFIX = "breaker:"


class Breaker(msgspec.Struct, frozen=True, kw_only=True):
    """When to leave a downstream alone, for how long, and how to come back.

    It opens when failure_rate of the calls that ended within `window` seconds failed, if they were at least min_calls; or, where
    `failures` is given, when so many failed, whatever their share. It stays open for open_for seconds, and each time it must open again
    before it was fully closed, twice as long, up to open_max. Then one call every probe_every seconds is let through; after `probes`
    successes in a row the rate doubles again and again, and after `ramp` seconds it is closed.
    """

    failure_rate: float = 0.5
    min_calls: int = 10
    failures: int | None = None
    window: float = 60.0
    open_for: float = 30.0
    open_max: float = 600.0
    probes: int = 3
    probe_every: float = 1.0
    ramp: float = 30.0

    def __post_init__(self) -> None:
        try:
            checked_number(self.failure_rate, "failure_rate", 0.001, 1, "")
            checked_count(self.min_calls, "min_calls", 1)
            if self.failures is not None:
                checked_count(self.failures, "failures", 1)
            checked_number(self.window, "window", 1, DAY_S, " of seconds")
            checked_number(self.open_for, "open_for", 0.1, DAY_S, " of seconds")
            checked_number(self.open_max, "open_max", self.open_for, DAY_S, " of seconds")
            checked_count(self.probes, "probes", 1)
            checked_number(self.probe_every, "probe_every", 0.001, 3_600, " of seconds")
            checked_number(self.ramp, "ramp", 0, DAY_S, " of seconds")
        except BadPolicy as problem:
            raise BadSetting(f"breaker: {problem}") from None


class Slot(NamedTuple):
    """The calls that ended within one part of the window."""

    start_us: int
    ok: int
    bad: int


class BreakerState(msgspec.Struct, frozen=True, kw_only=True):
    """What the fleet knows of a downstream; stored as JSON. A downstream nobody has written about is closed."""

    state: Phase = "closed"
    since_us: int = 0
    until_us: int = 0  # open: when it goes half open; 0 where an operator opened it
    opened: int = 0  # times in a row, without being fully closed between
    calls: tuple[Slot, ...] = ()
    good_probes: int = 0
    counts_from_us: int = 0  # calls claimed earlier tell of a time that is over
    held_until_us: int = 0  # a Retry-After holds everything until then, whatever the state
    held_why: str = ""
    manual: bool = False  # an operator opened it, and only an operator closes it
    by: str = ""
    reason: str = ""
    written_by: tuple[str, ...] = ()  # the marks of the last writes: no write equals another, and each can be found for a while


class Calls(msgspec.Struct, frozen=True, kw_only=True):
    """Calls to a downstream that have ended, all of jobs claimed at one time."""

    ok: int = 0
    bad: int = 0
    began_us: int = 0
    retry_after_us: int | None = None  # the longest wait it asked for, from now


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A change worth an event."""

    kind: EventKind
    why: str
    until_us: int = 0
    by: str = ""


Turned = tuple[BreakerState, list[Turn]]


def write_state(state: BreakerState) -> str:
    """The text of its note."""
    return msgspec.json.encode(state).decode()


def read_state(body: str) -> BreakerState | None:
    """The state back from its text; None if it is no such text."""
    try:
        return msgspec.json.decode(body, type=BreakerState)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


# -- What time, calls and operators do to it -----------------------------------------------------------------------------


def passed(state: BreakerState, breaker: Breaker, now_us: int) -> Turned:
    """What the passing of time alone changes."""
    state = _after_a_clock_went_back(state, now_us)
    if state.state == "open" and not state.manual and now_us >= state.until_us:
        return _half_open(state, breaker, now_us)
    if state.state == "closing" and now_us >= _ramp_end_us(state, breaker, now_us):
        why = f"it was well for {span(breaker.ramp)} under a growing load"
        closed = replace(state, state="closed", since_us=now_us, opened=0, good_probes=0, reason=why)
        return closed, [Turn(kind="BREAKER_CLOSED", why=why)]
    return state, []


def reported(state: BreakerState, breaker: Breaker, calls: Calls, now_us: int) -> Turned:
    """What ended calls change, after what time did.

    Calls claimed before it last went half open, or was closed by hand, do not count. While it is open none does.
    """
    state, turns = passed(state, breaker, now_us)
    state, more = held(state, calls.retry_after_us, now_us)
    turns += more
    if state.state == "open" or calls.began_us < state.counts_from_us or not (calls.ok or calls.bad):
        return state, turns
    state = replace(state, calls=_with_calls(state.calls, calls, breaker, now_us))
    if calls.bad:
        why = "a probe failed" if state.state == "half_open" else _too_many(state, breaker)
        state, more = _open(state, breaker, now_us, why) if why else (state, [])
    elif state.state == "half_open":
        state, more = _probed(state, breaker, calls.ok, now_us)
    else:
        more = []
    return state, turns + more


def held(state: BreakerState, retry_after_us: int | None, now_us: int) -> Turned:
    """One Retry-After holds everybody. That is told when it begins, and when it has become at least twice as long."""
    if retry_after_us is None or retry_after_us <= 0:
        return state, []
    until_us = now_us + min(retry_after_us, RETRY_AFTER_MAX_US)
    before_us = state.held_until_us if is_held(state, now_us) else now_us
    if until_us <= before_us:
        return state, []
    why = f"it asked to be left alone for {span((until_us - now_us) / SECOND_US)}"
    turns = [Turn(kind="DOWNSTREAM_HELD", why=why, until_us=until_us)] if until_us - now_us >= 2 * (before_us - now_us) else []
    return replace(state, held_until_us=until_us, held_why=why), turns


def opened_by_hand(state: BreakerState, now_us: int, *, by: str, reason: str) -> Turned:
    """Open until an operator closes it."""
    if state.state == "open" and (state.manual, state.by, state.reason) == (True, by, reason):
        return state, []
    since_us = state.since_us if state.state == "open" else now_us
    state = replace(state, state="open", since_us=since_us, until_us=0, calls=(), good_probes=0, manual=True, by=by, reason=reason)
    return state, [Turn(kind="BREAKER_OPENED", why=reason or "an operator opened it", by=by)]


def closed_by_hand(state: BreakerState, now_us: int, *, by: str, reason: str) -> Turned:
    """Closed at once. What was counted is forgotten, calls that are under way do not count, and no Retry-After holds any more."""
    was_shut = state.state != "closed" or is_held(state, now_us)
    turns = [Turn(kind="BREAKER_CLOSED", why=reason or "an operator closed it", by=by)] if was_shut else []
    return BreakerState(since_us=now_us, counts_from_us=now_us, by=by, reason=reason), turns


def _open(state: BreakerState, breaker: Breaker, now_us: int, why: str) -> Turned:
    opened = state.opened + 1
    open_s = min(breaker.open_max, breaker.open_for * 2.0 ** min(opened - 1, _LONGEST_DOUBLINGS))
    until_us = now_us + round(open_s * SECOND_US)
    state = replace(state, state="open", since_us=now_us, until_us=until_us, opened=opened, calls=(), good_probes=0, by="", reason=why)
    return state, [Turn(kind="BREAKER_OPENED", why=why, until_us=until_us)]


def _half_open(state: BreakerState, breaker: Breaker, now_us: int) -> Turned:
    why = f"its time is over; one call every {span(breaker.probe_every)} tries whether it is well again"
    state = replace(state, state="half_open", since_us=now_us, until_us=0, counts_from_us=now_us, reason=why)
    return state, [Turn(kind="BREAKER_HALF_OPEN", why=why)]


def _probed(state: BreakerState, breaker: Breaker, ok: int, now_us: int) -> Turned:
    """Good probes; enough of them begin to close it."""
    good = state.good_probes + ok
    if good < breaker.probes:
        return replace(state, good_probes=good), []
    why = f"{good} probes in a row succeeded"
    state = replace(state, state="closing", since_us=now_us, good_probes=good, reason=why)
    turns = [Turn(kind="BREAKER_CLOSING", why=why, until_us=_ramp_end_us(state, breaker, now_us))]
    state, more = passed(state, breaker, now_us)  # a ramp of no length is over
    return state, turns + more


def _too_many(state: BreakerState, breaker: Breaker) -> str:
    """Why it has to open; empty if it has not."""
    ok, bad = sum(slot.ok for slot in state.calls), sum(slot.bad for slot in state.calls)
    if breaker.failures is not None and bad >= breaker.failures:
        return f"{bad} calls failed within {span(breaker.window)}"
    if ok + bad >= breaker.min_calls and bad / (ok + bad) >= breaker.failure_rate:
        return f"{bad} of {ok + bad} calls failed within {span(breaker.window)}"
    return ""


def _with_calls(slots: tuple[Slot, ...], calls: Calls, breaker: Breaker, now_us: int) -> tuple[Slot, ...]:
    """The window with these calls in the slot of now, and without the slots that left it (or lie ahead: the clock went back)."""
    window_us = round(breaker.window * SECOND_US)
    counted = {slot.start_us: slot for slot in slots if abs(now_us - slot.start_us) < window_us}
    start_us = now_us - now_us % (window_us // SLOTS)
    before = counted.get(start_us, Slot(start_us, 0, 0))
    counted[start_us] = Slot(start_us, before.ok + calls.ok, before.bad + calls.bad)
    return tuple(counted[start_us] for start_us in sorted(counted))


def _after_a_clock_went_back(state: BreakerState, now_us: int) -> BreakerState:
    """The same state, as if it had begun now: otherwise it would last until the clock has come to where it was."""
    ahead_us = state.since_us - now_us
    if ahead_us <= CLOCK_SLACK_US:
        return state
    until_us = state.until_us - ahead_us if state.until_us else 0
    return replace(state, since_us=now_us, until_us=until_us, counts_from_us=min(state.counts_from_us, now_us))


# -- What it allows ------------------------------------------------------------------------------------------------------


def is_held(state: BreakerState, now_us: int) -> bool:
    """Whether a Retry-After holds the downstream now. One that would last longer than any may was given before a clock went back."""
    return now_us < state.held_until_us <= now_us + RETRY_AFTER_MAX_US + CLOCK_SLACK_US


def refusal(state: BreakerState, began_us: int, now_us: int) -> str:
    """Why a job that was claimed at `began_us` must not start now; empty if it may. It was let through when things were different."""
    if state.state == "open":
        return f"that breaker is open: {state.reason}"
    if is_held(state, now_us):
        return f"that one is held: {state.held_why}"
    if state.state == "half_open" and began_us < state.counts_from_us:
        return "that breaker is half open, and this job is not one of its probes"
    return ""


def limits(name: str, state: BreakerState, breaker: Breaker, now_us: int) -> tuple[Bucket, ...]:
    """What the jobs that depend on the downstream may do: nothing; a start now and then; or, without a limit, everything."""
    if state.state == "open" or is_held(state, now_us):
        return (_bucket(name, f"{_KEY_PREFIX}{name}", 0, 0),)
    # Each of these phases has a bucket of its own, which begins full: with one token, however many workers there are.
    key = f"{_KEY_PREFIX}{name}:{state.since_us}"
    probe_rate_u = round(TOKEN / breaker.probe_every)
    if state.state == "half_open":
        return (_bucket(name, key, probe_rate_u, TOKEN),)
    if state.state == "closing" and now_us < _ramp_end_us(state, breaker, now_us):
        elapsed_s = max(0, now_us - _ramp_start_us(state, now_us)) / SECOND_US
        rate_u = min(RATE_U_MAX, round(probe_rate_u * 2.0 ** (DOUBLINGS * elapsed_s / breaker.ramp)))
        return (_bucket(name, key, rate_u, max(TOKEN, round(rate_u * CLOSING_BURST_S))),)
    return ()


def is_of_breaker(bucket: Bucket) -> bool:
    """Whether a bucket is what some breaker's state allows, and no lasting setting."""
    return bucket.key.startswith(_KEY_PREFIX)


def wakes_at(state: BreakerState, breaker: Breaker, now_us: int) -> int | None:
    """When time alone will next change what is allowed; None if it will not, or if that is due already."""
    times = [state.held_until_us] if is_held(state, now_us) else []
    if state.state == "open" and not state.manual:
        times.append(state.until_us)
    if state.state == "closing":
        times.append(_ramp_end_us(state, breaker, now_us))
    return min((time_us for time_us in times if time_us > now_us), default=None)


def _ramp_start_us(state: BreakerState, now_us: int) -> int:
    """A downstream that asks to be left alone while its load grows gets the whole ramp once more after that."""
    was_held = state.since_us < state.held_until_us <= now_us
    return state.held_until_us if was_held or is_held(state, now_us) else state.since_us


def _ramp_end_us(state: BreakerState, breaker: Breaker, now_us: int) -> int:
    return _ramp_start_us(state, now_us) + round(breaker.ramp * SECOND_US)


def _bucket(name: str, key: str, rate_u: int, burst_u: int) -> Bucket:
    return Bucket(key=key, rate_u=rate_u, burst_u=burst_u, part=DOWNSTREAM, value=name)
