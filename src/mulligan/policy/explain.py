"""A policy in one sentence: how often, how long, how spread, and when it gives up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mulligan.policy.adaptive import grown, lifted, times
from mulligan.policy.checks import span
from mulligan.policy.jitter import parse_jitter
from mulligan.policy.rules import rule_name

if TYPE_CHECKING:
    from mulligan.policy.retry import ResolvedPolicy

WAITS_SHOWN = 6  # a longer list of waits is cut after one less, and ends with its last wait
WAITS_SUMMED = 1_000  # beyond it the sum counts every wait as the last one, which is still an upper bound


def explain(policy: ResolvedPolicy) -> str:
    """The sentence, without a full stop, so that it can stand inside another one."""
    return "; ".join((_course(policy), *_congestion(policy), *_ends(policy), *_rules(policy)))


def _course(policy: ResolvedPolicy) -> str:
    """How many executions there are and what lies between them."""
    retries = policy.max_retries
    if retries == 0:
        return "1 execution, no retries"
    head = "unlimited executions" if retries is None else f"{retries + 1:,} executions"
    jitter = parse_jitter(policy.jitter)
    if jitter.kind == "none":
        return f"{head}, waits {_waits(policy)}, no jitter"
    return f"{head}, waits about {_waits(policy)}, {jitter} jitter"


def _waits(policy: ResolvedPolicy) -> str:
    retries = policy.max_retries
    if retries is not None and retries <= WAITS_SHOWN:
        return ", ".join(span(policy.raw_delay(n)) for n in range(1, retries + 1))
    first = ", ".join(span(policy.raw_delay(n)) for n in range(1, WAITS_SHOWN))
    if retries is None:
        return f"{first} and so on, up to {span(policy.backoff.ceiling)}"
    return f"{first} ... {span(policy.raw_delay(retries))}"


def _congestion(policy: ResolvedPolicy) -> list[str]:
    """What makes the waits longer than the ones told."""
    if policy.adaptive is None or policy.max_retries == 0:
        return []
    depth, age, failures, most = policy.adaptive.numbers()
    parts = []
    if depth is not None:
        parts.append(f"x 2 at {depth:,} {'job' if depth == 1 else 'jobs'} waiting")
    if age is not None:
        parts.append(f"x 2 when the oldest has waited {span(age)}")
    if failures is not None:
        parts.append(f"x {times(1 + failures)} when all executions fail")
    largest = [] if most is None else [f"at most x {times(most)}"]
    return [f"waits grow with congestion, {', '.join([*parts, *largest])}, up to {span(policy.backoff.ceiling)}"]


def _ends(policy: ResolvedPolicy) -> list[str]:
    """What makes it give up."""
    ends = []
    if policy.max_retries:
        ends.append(f"after at most {span(_longest_wait(policy, policy.max_retries))} of waiting")
    if policy.max_age is not None:
        ends.append(f"{span(policy.max_age)} after it first fell due")
    if ends:
        return [f"gives up {' or '.join(ends)}"]
    return ["never gives up"] if policy.max_retries is None else []


def _longest_wait(policy: ResolvedPolicy, retries: int) -> float:
    """The sum of the longest delays that the jitter can make of the waits, in the worst congestion the policy follows."""
    total = 0.0
    previous: float | None = None
    for n in range(1, min(retries, WAITS_SUMMED) + 1):
        previous = _longest(policy, n, previous)
        total += previous
    if retries > WAITS_SUMMED:
        total += (retries - WAITS_SUMMED) * _longest(policy, retries, previous)
    return total


def _longest(policy: ResolvedPolicy, n: int, previous: float | None) -> float:
    backoff, raw = policy.backoff, policy.raw_delay(n)
    if policy.adaptive is not None:
        factor = policy.adaptive.largest
        raw, previous = grown(raw, factor, backoff.ceiling), lifted(previous, backoff.start, factor, backoff.ceiling)
    return parse_jitter(policy.jitter).longest(raw, backoff.start, backoff.ceiling, previous, policy.clamp)


def _rules(policy: ResolvedPolicy) -> list[str]:
    """What the policy does with errors it knows by name."""
    told = []
    if policy.give_up_on:
        told.append(f"gives up at once on {', '.join(map(rule_name, policy.give_up_on))}")
    if policy.snooze_on:
        told.append("snoozes " + ", ".join(f"{span(seconds)} on {rule_name(rule)}" for rule, seconds in policy.snooze_on))
    if policy.retry_on is not None:
        told.append(f"retries only {', '.join(map(rule_name, policy.retry_on)) or 'when the handler asks for it'}")
    return told
