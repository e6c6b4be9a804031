"""The numbers of a policy as the JSON text that is stored with each job, and back.

The text holds what differs from the defaults of its version, so the commonest policy is a few bytes. Those defaults are written
out here and never change: when the defaults of RetryPolicy do, the version rises, and jobs enqueued before keep the old ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from mulligan.core.errors import BadPolicy
from mulligan.policy.backoff import KINDS, Backoff, Custom

if TYPE_CHECKING:
    from mulligan.policy.retry import ResolvedPolicy

VERSION = 1


class Frozen(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of one policy. The defaults are those of version 1, for good; a later version writes its `v`."""

    v: int = 1
    retries: int | None = 3
    backoff: tuple[Any, ...] = ("exponential", 1, 2, 900)  # the kind, then its numbers
    jitter: str = "full"
    clamp: bool = True
    adaptive: tuple[Any, ...] | None = None  # depth, age, failures, most; checked when an Adaptive is made of them
    age: float | None = None
    crashes: int = 3
    snoozes: int = 100
    retry_after: float = 3600
    rules: bool = False  # the policy had rules in code, which are not in this text

    def shape(self, code: object) -> tuple[Backoff, str]:
        """The backoff of these numbers, with the function of the code's backoff if there was one; and a remark if that is missing."""
        kind, *numbers = self.backoff  # whatever they are, they are checked when the backoff is made of them
        if kind == Custom.kind:
            if isinstance(code, Custom):
                return Custom(code.function, *numbers), ""
            return Custom(float, *numbers).stand_in, "the task's delay function is not at hand, so the frozen numbers decide"
        if kind not in KINDS:
            raise BadPolicy(f"backoff {kind!r} is not known")
        return KINDS[kind](*numbers).filled(), ""


_defaults: dict[str, Any] = msgspec.structs.asdict(Frozen())
_decoder = msgspec.json.Decoder(Frozen)


def write_numbers(policy: ResolvedPolicy) -> str:
    """The text of a policy's numbers."""
    frozen = Frozen(
        retries=policy.max_retries,
        backoff=(policy.backoff.kind, *policy.backoff.numbers()),
        jitter=policy.jitter,
        clamp=policy.clamp,
        adaptive=None if policy.adaptive is None else tuple(policy.adaptive.numbers()),
        age=policy.max_age,
        crashes=policy.max_crashes,
        snoozes=policy.max_snoozes,
        retry_after=policy.max_retry_after,
        rules=bool(policy.give_up_on or policy.snooze_on or policy.retry_on is not None or policy.code_missing),
    )
    fields = msgspec.structs.asdict(frozen)
    told = {name: value for name, value in fields.items() if value != _defaults[name]}
    return msgspec.json.encode(told).decode()


def read_numbers(text: str) -> Frozen:
    """The numbers of a text; raises BadPolicy for what is none, or is of a version this code does not speak."""
    try:
        frozen = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise BadPolicy(str(problem)) from problem
    if frozen.v != VERSION:
        raise BadPolicy(f"it is of version {frozen.v}, this is version {VERSION}")
    return frozen
