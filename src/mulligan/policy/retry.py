"""RetryPolicy: what a user writes. ResolvedPolicy: the same with every field filled in. And the way into and out of a stored job.

A policy is merged from several (job over task over queue over app), field by field; what nobody gives takes the default.
None means "not given", except where it is a value of its own: max_retries=None is unlimited, max_age=None is no maximum, adaptive=None
does not adapt.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from mulligan.core.clock import SECOND_US
from mulligan.core.contract import Signals
from mulligan.core.errors import BadPolicy
from mulligan.policy.adaptive import Adaptive, checked_adaptive, grown, lifted
from mulligan.policy.backoff import Backoff, Custom, Exponential, measured
from mulligan.policy.checks import checked_count, checked_seconds, shown, span
from mulligan.policy.explain import explain
from mulligan.policy.freeze import Frozen, read_numbers, write_numbers
from mulligan.policy.jitter import checked_jitter, parse_jitter
from mulligan.policy.rules import Rule, checked_rules, checked_snoozes

Rules = Rule | Sequence[Rule]
Snoozes = Mapping[Rule, float] | Sequence[tuple[Rule, float]] | Rules
THAWED_MAX = 10_000
_NONE_IS_A_VALUE = frozenset({"max_retries", "max_age", "adaptive"})
CALM = Signals(now_us=0)  # nothing waits, nothing fails, every budget has something left


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What follows a failure. Every field may be left out; what is given is checked at once.

    Errors are ruled on in this order: give_up_on, snooze_on, retry_on. What no rule names is retried, unless retry_on is given.
    A rule is an exception class or a predicate on the exception; snooze_on maps rules to seconds, as in {RateLimited: 30}.
    """

    max_retries: int | None | UnsetType = UNSET  # runs after the first; None: unlimited
    backoff: Backoff | Callable[[int], float] | None | UnsetType = UNSET
    jitter: str | None | UnsetType = UNSET
    clamp: bool | None | UnsetType = UNSET  # False lets percent jitter go above the cap
    adaptive: Adaptive | None | UnsetType = UNSET  # delays that grow with congestion; None: they do not
    give_up_on: Rules | None | UnsetType = UNSET
    retry_on: Rules | None | UnsetType = UNSET
    snooze_on: Snoozes | None | UnsetType = UNSET
    max_age: float | None | UnsetType = UNSET  # seconds since the job first fell due; no retry is planned beyond it
    max_crashes: int | None | UnsetType = UNSET  # so many lost workers end a job
    max_snoozes: int | None | UnsetType = UNSET
    max_retry_after: float | None | UnsetType = UNSET  # seconds; cuts Retry(after=) and Retry-After

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            value = getattr(self, name)
            if value is None and name not in _NONE_IS_A_VALUE:
                msgspec.structs.force_setattr(self, name, UNSET)
            elif value is not None and value is not UNSET:
                msgspec.structs.force_setattr(self, name, check(value))

    def over(self, base: RetryPolicy) -> RetryPolicy:
        """This policy, with what it leaves out taken from `base`; backoffs of one kind, and adaptives, merge field by field too."""
        fields = {name: _merged(getattr(self, name), getattr(base, name)) for name in _CHECKS}
        return RetryPolicy(**fields)

    def resolved(self) -> ResolvedPolicy:
        """This policy with the defaults filled in; BadPolicy if its fields contradict each other. Warns of endless retries."""
        policy = self.filled()
        if policy.max_retries is None and policy.max_age is None:
            warnings.warn("max_retries=None without max_age retries for ever; set max_age to bound it", stacklevel=2)
        return policy

    def filled(self) -> ResolvedPolicy:
        """The same as resolved(), without the warning."""
        merged = self.over(_DEFAULTS)
        fields = {name: value for name in _CHECKS if (value := getattr(merged, name)) is not UNSET}
        fields["backoff"] = fields["backoff"].filled()
        return ResolvedPolicy(**fields)

    def raw_delay(self, n: int, *, depth: int = 0, oldest_age: float = 0, failure_rate: float = 0) -> float:
        """Seconds to wait after the n-th failure, n from 1, before jitter.

        An adaptive policy answers for a queue where `depth` jobs are due, the oldest of them for `oldest_age` seconds, and that share
        of the executions fails: without them, for one that is not congested.
        """
        signals = Signals(now_us=0, depth=depth, oldest_age_us=round(oldest_age * SECOND_US), failure_rate=failure_rate)
        policy = self.filled()
        return grown(policy.backoff.measure(n)[0], policy.congestion(signals)[0], policy.backoff.ceiling)

    def delay(self, n: int, *, rng: Random, previous: float | None = None) -> float:
        """Seconds to wait after the n-th failure, n from 1. `previous` is the delay before, which decorrelated jitter builds on."""
        return self.filled().choose(n, rng, previous)[0]

    def explain(self) -> str:
        """The policy in one sentence."""
        return explain(self.filled())

    @classmethod
    def preset(cls, name: str, *, executions: int | None = None, clamp: bool | None = None) -> RetryPolicy:
        """The policy of one of the designs mulligan grew from: micro-queue, weave, springqueue, region-queue, region-queue-adaptive, omniq.

        `executions` sets the limit the way springqueue counts, first run included. `clamp=False` lets omniq's jitter
        exceed the cap, as the original did.
        """
        from mulligan.policy.presets import make_preset

        return make_preset(name, executions, clamp)


class ResolvedPolicy(RetryPolicy, frozen=True, kw_only=True):
    """A policy with nothing left out: what classify and decide work with."""

    max_retries: int | None
    backoff: Backoff
    jitter: str
    clamp: bool
    give_up_on: tuple[Rule, ...] = ()
    retry_on: tuple[Rule, ...] | None = None  # None: not given, so what no rule names is retried
    snooze_on: tuple[tuple[Rule, float], ...] = ()
    adaptive: Adaptive | None = None
    max_age: float | None
    max_crashes: int
    max_snoozes: int
    max_retry_after: float
    code_missing: bool = False  # it had rules in code, which are not at hand here
    note: str = ""  # what to say about every delay of this policy, when something of it could not be read

    def __post_init__(self) -> None:
        """Nothing to check: it is made of a checked policy, or of numbers that were read back."""

    def resolved(self) -> ResolvedPolicy:
        """Itself."""
        return self

    def filled(self) -> ResolvedPolicy:
        """Itself."""
        return self

    @property
    def max_retry_after_us(self) -> int:
        """The longest wait a handler or a server may ask for."""
        return round(self.max_retry_after * SECOND_US)

    @property
    def max_age_us(self) -> int | None:
        """The maximum age in microseconds."""
        return None if self.max_age is None else round(self.max_age * SECOND_US)

    def congestion(self, signals: Signals) -> tuple[float, str]:
        """By how much the signals lengthen delays under this policy, and in words what for."""
        return (1, "") if self.adaptive is None else self.adaptive.factor(signals)

    def choose(self, n: int, rng: Random, previous: float | None, signals: Signals = CALM) -> tuple[float, str]:
        """The delay after the n-th failure in seconds, and in words how it came about."""
        jitter = parse_jitter(self.jitter)
        raw, how, start, ceiling = measured(self.backoff, n)
        factor, causes = self.congestion(signals)
        if causes:
            wanted, raw = raw * factor, grown(raw, factor, ceiling)
            how = f"{how}, {causes}" + (f", capped at {span(raw)}" if wanted > raw else f" = {span(raw)}")
            previous = lifted(previous, start, factor, ceiling)
        delay = jitter.apply(raw, start, ceiling, previous, self.clamp, rng)
        chosen = "" if jitter.kind == "none" else f", {jitter} jitter chose {span(delay)}"
        return delay, f"{how}{chosen}" + (f"; {self.note}" if self.note else "")


def _merged(mine: Any, theirs: Any) -> Any:
    """The nearer of two values of a field; backoffs and adaptives have fields of their own, which merge too."""
    if theirs is not UNSET and isinstance(mine, Backoff | Adaptive):
        return mine.over(theirs)
    return theirs if mine is UNSET else mine


def _checked_backoff(given: object) -> Backoff:
    if isinstance(given, Backoff):
        return given
    if isinstance(given, type) or not callable(given):
        raise BadPolicy(f"backoff must be Exponential, Linear, Polynomial, Constant, Delays or a function of n, not {shown(given)}")
    return Custom(given)


def _checked_clamp(given: object) -> bool:
    if not isinstance(given, bool):
        raise BadPolicy(f"clamp must be True or False, not {shown(given)}")
    return given


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "max_retries": lambda value: checked_count(value, "max_retries", 0),
    "backoff": _checked_backoff,
    "jitter": checked_jitter,
    "clamp": _checked_clamp,
    "adaptive": checked_adaptive,
    "give_up_on": lambda value: checked_rules(value, "give_up_on"),
    "retry_on": lambda value: checked_rules(value, "retry_on"),
    "snooze_on": checked_snoozes,
    "max_age": lambda value: checked_seconds(value, "max_age"),
    "max_crashes": lambda value: checked_count(value, "max_crashes", 1),
    "max_snoozes": lambda value: checked_count(value, "max_snoozes", 0),
    "max_retry_after": lambda value: checked_seconds(value, "max_retry_after"),
}
_DEFAULTS = RetryPolicy(
    max_retries=3,
    backoff=Exponential(),
    jitter="full",
    clamp=True,
    adaptive=None,
    max_age=None,
    max_crashes=3,
    max_snoozes=100,
    max_retry_after=3_600,
)

# Policies read back, by text and identity of the code: the hot path costs one look-up. The code is kept with its entry,
# so that its identity cannot pass to another object while the entry lives.
_thawed: dict[tuple[str, int], tuple[RetryPolicy | None, ResolvedPolicy]] = {}


def freeze(policy: RetryPolicy) -> str:
    """The numbers of a policy as the text that is stored with a job. Rules and functions are code and stay behind."""
    return write_numbers(policy.resolved())


def thaw(text: str, code: RetryPolicy | None = None) -> ResolvedPolicy:
    """The policy of a stored text, with the rules and the delay function of `code`: the task's policy in this process, if it has one.

    Never raises. Where the text cannot be read the defaults decide, and `.note` says so.
    """
    key = (text, id(code))
    known = _thawed.get(key)
    if known is None:
        if len(_thawed) >= THAWED_MAX:
            _thawed.clear()
        known = _thawed[key] = (code, _read(text, code))
    return known[1]


def _read(text: str, code: RetryPolicy | None) -> ResolvedPolicy:
    try:
        return _from_numbers(read_numbers(text), code)
    except (BadPolicy, TypeError, ValueError) as problem:
        note = f"the job's stored policy could not be read ({problem}), so the defaults decide"
        return msgspec.structs.replace(_from_numbers(Frozen(), code), note=note)


def _from_numbers(frozen: Frozen, code: RetryPolicy | None) -> ResolvedPolicy:
    backoff, note = frozen.shape(None if code is None else code.backoff)
    policy = RetryPolicy(
        max_retries=frozen.retries,
        backoff=backoff,
        jitter=frozen.jitter,
        clamp=frozen.clamp,
        adaptive=None if frozen.adaptive is None else Adaptive(*frozen.adaptive),
        max_age=frozen.age,
        max_crashes=frozen.crashes,
        max_snoozes=frozen.snoozes,
        max_retry_after=frozen.retry_after,
        give_up_on=UNSET if code is None else code.give_up_on,
        retry_on=UNSET if code is None else code.retry_on,
        snooze_on=UNSET if code is None else code.snooze_on,
    )
    return msgspec.structs.replace(policy.filled(), code_missing=frozen.rules and code is None, note=note)
