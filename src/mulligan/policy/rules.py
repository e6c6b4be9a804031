"""Rules about errors: what give_up_on, retry_on and snooze_on hold, and how one of them matches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mulligan.core.errors import BadPolicy
from mulligan.policy.checks import checked_function, checked_seconds, name_of, shown

Rule = type[BaseException] | Callable[[Any], bool]  # an exception class, or a predicate on the current exception
SNOOZE_DEFAULT_S = 30


def checked_rules(given: object, field: str) -> tuple[Rule, ...]:
    """The rules of a field as a tuple; a single one may stand alone."""
    entries = tuple(given) if isinstance(given, (tuple, list, set, frozenset)) else (given,)
    return tuple(_checked_rule(entry, field) for entry in entries)


def checked_snoozes(given: object) -> tuple[tuple[Rule, float], ...]:
    """The rules of snooze_on with their seconds: a mapping or pairs; a rule alone snoozes for the default time."""
    if isinstance(given, Mapping):
        entries: tuple[Any, ...] = tuple(given.items())
    else:
        entries = tuple(given) if isinstance(given, (tuple, list, set, frozenset)) else (given,)
    pairs = [entry if isinstance(entry, tuple) and len(entry) == 2 else (entry, SNOOZE_DEFAULT_S) for entry in entries]
    return tuple((_checked_rule(rule, "snooze_on"), checked_seconds(seconds, "snooze_on seconds")) for rule, seconds in pairs)


def _checked_rule(entry: Any, field: str) -> Rule:
    if isinstance(entry, type):
        if issubclass(entry, BaseException):
            return entry
        raise BadPolicy(f"{field} must name exception classes or predicates; {name_of(entry)} is a class, but not of exceptions")
    if not callable(entry):
        raise BadPolicy(
            f"{field} must name exception classes or predicates (functions from an exception to true or false), not {shown(entry)}"
        )
    return checked_function(entry, field)


def matches(rule: Rule, error: BaseException) -> tuple[bool, str]:
    """Whether the rule applies, and a remark if asking it went wrong: that counts as no, for a failure path must not fail."""
    try:
        return isinstance(error, rule) if isinstance(rule, type) else bool(rule(error)), ""
    except (Exception, SystemExit) as problem:  # noqa: BLE001 - whatever the user's code does, the error must be ruled on
        return False, f"the rule {rule_name(rule)} raised {type(problem).__name__} and counts as no"


def rule_name(rule: Rule) -> str:
    """A rule as the history names it."""
    return name_of(rule) if isinstance(rule, type) else f"{name_of(rule)}()"
