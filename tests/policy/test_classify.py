from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from mulligan.core.errors import Cancel, Fail, JobSignal, Retry, Snooze
from mulligan.core.outcome import CancelObeyed, Raised, Ruling, Snoozed
from mulligan.policy.classify import classify
from mulligan.policy.retry import RetryPolicy, freeze, thaw
from tests.policy.samples import NOW_US, SECOND_US, raised


class RateLimited(ConnectionError):
    def __init__(self, retry_after: Any = None) -> None:
        super().__init__("slow down")
        self.retry_after = retry_after


class Picky(type):
    def __instancecheck__(cls, instance: object) -> bool:
        raise ZeroDivisionError


class Awkward(Exception, metaclass=Picky):
    pass


def is_fatal(error: BaseException) -> bool:
    return "fatal" in str(error)


def is_mad(error: BaseException) -> bool:
    raise KeyError(error)


def is_exiting(error: BaseException) -> bool:
    raise SystemExit


def ruled(error: BaseException, **fields: Any) -> Raised:
    outcome = classify(error, RetryPolicy(**fields), NOW_US)
    assert isinstance(outcome, Raised)
    return outcome


@pytest.mark.parametrize(
    ("error", "fields", "ruling", "rule"),
    [
        (ValueError("x"), {}, "retry", ""),
        (ValueError("x"), {"give_up_on": ValueError}, "give_up", "give_up_on names ValueError"),
        (UnicodeError("x"), {"give_up_on": ValueError}, "give_up", "give_up_on names ValueError"),
        (KeyError("x"), {"give_up_on": ValueError}, "retry", "no rule names KeyError"),
        (KeyError("x"), {"snooze_on": {ValueError: 5}}, "retry", "no rule names KeyError"),
        (OSError("x"), {"retry_on": OSError}, "retry", "retry_on names OSError"),
        (ConnectionError("x"), {"retry_on": (KeyError, OSError)}, "retry", "retry_on names OSError"),
        (KeyError("x"), {"retry_on": OSError}, "give_up", "retry_on does not name KeyError"),
        (KeyError("x"), {"retry_on": ()}, "give_up", "retry_on does not name KeyError"),
        (KeyError("fatal"), {"give_up_on": is_fatal}, "give_up", "give_up_on names is_fatal()"),
        (KeyError("x"), {"retry_on": (is_fatal,)}, "give_up", "retry_on does not name KeyError"),
        (OSError("x"), {"snooze_on": {OSError: 5}}, "snooze", "snooze_on names OSError"),
        # The first list that names an error decides: give_up_on, snooze_on, retry_on.
        (OSError("x"), {"give_up_on": OSError, "snooze_on": {OSError: 5}, "retry_on": OSError}, "give_up", "give_up_on names OSError"),
        (OSError("x"), {"give_up_on": KeyError, "snooze_on": {OSError: 5}, "retry_on": OSError}, "snooze", "snooze_on names OSError"),
        (OSError("x"), {"give_up_on": KeyError, "snooze_on": {KeyError: 5}, "retry_on": OSError}, "retry", "retry_on names OSError"),
        # A rule that goes wrong counts as no, and is named.
        (OSError("x"), {"give_up_on": is_mad}, "retry", "no rule names OSError; the rule is_mad() raised KeyError and counts as no"),
        (
            OSError("x"),
            {"give_up_on": (is_exiting, is_mad, OSError)},
            "give_up",
            "give_up_on names OSError; the rule is_exiting() raised SystemExit and counts as no; "
            "the rule is_mad() raised KeyError and counts as no",
        ),
        (
            OSError("x"),
            {"retry_on": is_mad},
            "give_up",
            "retry_on does not name OSError; the rule is_mad() raised KeyError and counts as no",
        ),
        (
            OSError("x"),
            {"give_up_on": Awkward},
            "retry",
            "no rule names OSError; the rule Awkward raised ZeroDivisionError and counts as no",
        ),
        (JobSignal("odd"), {}, "retry", ""),
    ],
)
def test_o11_first_matching_rule_decides(error: BaseException, fields: dict[str, Any], ruling: Ruling, rule: str) -> None:
    """O11, E12: by type or by predicate on the current exception; what decided is told in words."""
    outcome = ruled(error, **fields)
    assert (outcome.ruling, outcome.rule) == (ruling, rule)
    assert outcome.error.type.endswith(type(error).__name__)
    assert outcome.error.at_us == NOW_US
    assert not (outcome.timed_out or outcome.asked or outcome.code_missing)


def test_predicate_sees_the_current_exception() -> None:
    """E12: not the text of the one before."""
    seen: list[BaseException] = []
    error = raised(ValueError("now"))
    ruled(error, give_up_on=lambda problem: seen.append(problem))
    assert seen == [error]


@pytest.mark.parametrize(
    ("error", "fields", "after_s", "rule"),
    [
        (ValueError("x"), {}, None, ""),
        (RateLimited(12), {}, 12, "the error carries a Retry-After of 12 s"),
        (RateLimited(90_000), {}, 90_000, "the error carries a Retry-After of 25 h"),  # decide cuts it
        (RateLimited(-3), {}, 0, "the error carries a Retry-After of 0 ms"),
        (RateLimited("soon"), {}, None, ""),
        (RateLimited(12), {"retry_on": OSError}, 12, "retry_on names OSError; the error carries a Retry-After of 12 s"),
        (RateLimited(12), {"give_up_on": OSError}, None, "give_up_on names OSError"),
        (RateLimited(), {"snooze_on": {RateLimited: 45}}, 45, "snooze_on names RateLimited"),
        (RateLimited(), {"snooze_on": RateLimited}, 30, "snooze_on names RateLimited"),
        (RateLimited(), {"snooze_on": {RateLimited: 9_000}, "max_retry_after": 60}, 9_000, "snooze_on names RateLimited"),
        (
            RateLimited(12),
            {"snooze_on": {RateLimited: 45}},
            12,
            "snooze_on names RateLimited; the error carries a Retry-After of 12 s",
        ),
        (
            RateLimited(90),
            {"snooze_on": {RateLimited: 45}, "max_retry_after": 60},
            60,
            "snooze_on names RateLimited; the error carries a Retry-After of 90 s",
        ),
    ],
)
def test_retry_after_is_honoured(error: BaseException, fields: dict[str, Any], after_s: float | None, rule: str) -> None:
    """A wait the error carries goes along with a retry and replaces the time of a snooze, where it is cut to max_retry_after."""
    outcome = ruled(error, **fields)
    assert outcome.after_us == (None if after_s is None else after_s * SECOND_US)
    assert outcome.rule == rule


def test_date_counts_from_the_given_now() -> None:
    """A Retry-After date becomes a wait from the time the error is classified at."""
    assert ruled(RateLimited("Tue, 14 Nov 2023 22:14:20 GMT")).after_us == 60 * SECOND_US


@pytest.mark.parametrize(
    ("signal", "after_us", "rule"),
    [
        (Retry("again"), None, "the handler asked for a retry"),
        (Retry(after=15), 15 * SECOND_US, "the handler asked for a retry after 15 s"),
        (Retry(after=timedelta(minutes=1)), 60 * SECOND_US, "the handler asked for a retry after 60 s"),  # type: ignore[arg-type]
        (Retry(after=0), 0, "the handler asked for a retry after 0 ms"),
        (Retry(after=-4), 0, "the handler asked for a retry after 0 ms"),
        (Retry(after=math.nan), None, "the handler asked for a retry after nan, which is no number of seconds"),
        (Retry(after="5\0"), None, "the handler asked for a retry after '5\\x00', which is no number of seconds"),  # type: ignore[arg-type]
    ],
)
def test_retry_signal_asks_for_a_retry(signal: Retry, after_us: int | None, rule: str) -> None:
    """Retry wins over every rule; a wish that is no time leaves the delay to the backoff."""
    outcome = ruled(signal, give_up_on=Exception)
    assert (outcome.ruling, outcome.after_us, outcome.rule, outcome.asked) == ("retry", after_us, rule, True)
    assert outcome.error.type == "mulligan.Retry"
    assert outcome.error.message == signal.message
    assert outcome.error.at_us == NOW_US


@pytest.mark.parametrize(
    ("signal", "expected"),
    [
        (Snooze(30), Snoozed(30 * SECOND_US, "")),
        (Snooze(0.5, "busy"), Snoozed(500_000, "busy")),
        (Snooze(-1), Snoozed(0, "")),
        (Snooze(math.nan), Snoozed(30 * SECOND_US, "")),
        (Snooze(10**12), Snoozed(366 * 86_400 * SECOND_US, "")),
        (Snooze(1, "a\0b"), Snoozed(SECOND_US, "a\N{REPLACEMENT CHARACTER}b")),
        (Snooze(1, "m" * 600), Snoozed(SECOND_US, "m" * 500 + "… (600 characters in all)")),
        (Snooze(1, 5), Snoozed(SECOND_US, "5")),  # type: ignore[arg-type]
        (Cancel(), CancelObeyed("")),
        (Cancel("not needed"), CancelObeyed("not needed")),
        (Cancel("a\ud800"), CancelObeyed("a?")),
    ],
)
def test_snooze_and_cancel_signals(signal: JobSignal, expected: object) -> None:
    """They become their outcomes, raised or returned alike, whatever the rules say."""
    policy = RetryPolicy(give_up_on=Exception)
    assert classify(signal, policy, NOW_US) == expected
    assert classify(raised(signal), policy, NOW_US) == expected


def test_fail_signal_gives_up() -> None:
    """Fail gives up whatever retries are left, and carries its code."""
    outcome = ruled(raised(Fail("no such invoice", code=404)), retry_on=Exception)
    assert (outcome.ruling, outcome.rule, outcome.after_us, outcome.asked) == ("give_up", "the handler gave up with Fail", None, False)
    assert (outcome.error.message, outcome.error.code) == ("no such invoice", "404")
    assert outcome.error.at_us == NOW_US


def test_signals_that_skip_their_constructor_are_survived() -> None:
    """A subclass may forget the fields; the wish still counts."""

    class Bare:
        def __init__(self) -> None:
            pass

    again = type("Again", (Bare, Retry), {})()
    later = type("Later", (Bare, Snooze), {})()
    never = type("Never", (Bare, Cancel), {})()
    assert ruled(again).asked
    assert classify(later, RetryPolicy(), NOW_US) == Snoozed(30 * SECOND_US, "")
    assert classify(never, RetryPolicy(), NOW_US) == CancelObeyed("")


def test_time_out_is_marked_and_ruled_on_like_any_error() -> None:
    """O17: a time-out is a failure; rules may name it."""
    outcome = classify(TimeoutError("late"), RetryPolicy(give_up_on=TimeoutError), NOW_US, timed_out=True)
    assert isinstance(outcome, Raised)
    assert (outcome.timed_out, outcome.ruling) == (True, "give_up")


def test_missing_code_is_told() -> None:
    """Where the task's rules are not at hand the frozen numbers decide: the error is retried, and marked."""
    policy = RetryPolicy(give_up_on=ValueError)
    outcome = classify(ValueError("x"), thaw(freeze(policy), None), NOW_US)
    assert isinstance(outcome, Raised)
    assert (outcome.code_missing, outcome.ruling) == (True, "retry")
    outcome = classify(ValueError("x"), thaw(freeze(policy), policy), NOW_US)
    assert isinstance(outcome, Raised)
    assert (outcome.code_missing, outcome.ruling) == (False, "give_up")


def test_names_of_rules_are_made_storable() -> None:
    """Even a rule's name is a text from outside."""

    def odd(error: BaseException) -> bool:
        return True

    odd.__name__ = "\0" + "n" * 600
    rule = ruled(ValueError("x"), give_up_on=odd).rule
    assert rule.startswith("give_up_on names \N{REPLACEMENT CHARACTER}nnn")
    assert rule.endswith("… (620 characters in all)")
    assert len(rule) == 500 + len("… (620 characters in all)")
