"""From what a handler raised or returned to the outcome that decide understands: the signals first, then the policy's rules in order."""

from __future__ import annotations

from collections.abc import Iterator

from mulligan.core.clock import SECOND_US
from mulligan.core.codec import storable_text
from mulligan.core.errors import Cancel, Fail, JobSignal, Retry, Snooze
from mulligan.core.outcome import CancelObeyed, Raised, Ruling, Snoozed
from mulligan.policy.checks import brief, name_of, span
from mulligan.policy.error_info import describe
from mulligan.policy.retry import ResolvedPolicy, RetryPolicy
from mulligan.policy.retry_after import retry_after_us, span_us
from mulligan.policy.rules import SNOOZE_DEFAULT_S, Rule, matches, rule_name

TEXT_CHARS_MAX = 500


def classify(error: BaseException, policy: RetryPolicy, now_us: int, *, timed_out: bool = False) -> Raised | Snoozed | CancelObeyed:
    """The outcome an error or a signal calls for. Never raises, whatever the error or the policy's predicates do."""
    if isinstance(error, JobSignal):
        outcome = _wish(error, now_us)
        if outcome is not None:
            return outcome
    policy = policy.filled()
    ruling, seconds, rule = _rule_on(error, policy)
    wait_us = told_us = None if ruling == "give_up" else retry_after_us(error, now_us)
    if wait_us is not None:
        rule = _joined(rule, f"the error carries a Retry-After of {span(wait_us / SECOND_US)}")
    if ruling == "snooze":
        # A snooze is as long as the policy says, however long; only what a server asks for is cut.
        wait_us = span_us(seconds) if wait_us is None else min(wait_us, policy.max_retry_after_us)
    return Raised(
        describe(error, now_us),
        ruling,
        storable_text(rule, TEXT_CHARS_MAX) if rule else "",
        wait_us,
        told_us,
        timed_out,
        code_missing=policy.code_missing,
    )


def _wish(signal: JobSignal, now_us: int) -> Raised | Snoozed | CancelObeyed | None:
    """What a handler asks for; None for a signal of a kind we do not know, which is then an error like any other."""
    if isinstance(signal, Retry):
        asked = getattr(signal, "after", None)
        after_us = span_us(asked)
        if asked is None:
            rule = "the handler asked for a retry"
        elif after_us is None:
            rule = f"the handler asked for a retry after {brief(asked)}, which is no number of seconds"
        else:
            rule = f"the handler asked for a retry after {span(after_us / SECOND_US)}"
        return Raised(error=describe(signal, now_us), rule=storable_text(rule, TEXT_CHARS_MAX), after_us=after_us, asked=True)
    if isinstance(signal, Snooze):
        delay_us = span_us(getattr(signal, "seconds", None))
        return Snoozed(SNOOZE_DEFAULT_S * SECOND_US if delay_us is None else delay_us, _text(signal, "message"))
    if isinstance(signal, Fail):
        return Raised(error=describe(signal, now_us), ruling="give_up", rule="the handler gave up with Fail")
    if isinstance(signal, Cancel):
        return CancelObeyed(_text(signal, "reason"))
    return None


def _rule_on(error: BaseException, policy: ResolvedPolicy) -> tuple[Ruling, float | None, str]:
    """The ruling of the first rule that matches, its seconds if it snoozes, and its name in words."""
    if policy.retry_on is None and not policy.give_up_on and not policy.snooze_on:  # as most are, and nothing has to be asked
        return "retry", None, ""
    remarks: list[str] = []
    for ruling, field, rule, seconds in _rules_in_order(policy):
        hit, remark = matches(rule, error)
        remarks.append(remark)
        if hit:
            return ruling, seconds, _joined(f"{field} names {rule_name(rule)}", *remarks)
    if policy.retry_on is not None:
        return "give_up", None, _joined(f"retry_on does not name {name_of(type(error))}", *remarks)
    return "retry", None, _joined(f"no rule names {name_of(type(error))}", *remarks)


def _rules_in_order(policy: ResolvedPolicy) -> Iterator[tuple[Ruling, str, Rule, float | None]]:
    for rule in policy.give_up_on:
        yield "give_up", "give_up_on", rule, None
    for rule, seconds in policy.snooze_on:
        yield "snooze", "snooze_on", rule, seconds
    for rule in policy.retry_on or ():
        yield "retry", "retry_on", rule, None


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def _text(signal: JobSignal, name: str) -> str:
    """A text the handler gave with its signal, made storable."""
    text = getattr(signal, name, "")
    return storable_text(text if isinstance(text, str) else brief(text), TEXT_CHARS_MAX)
