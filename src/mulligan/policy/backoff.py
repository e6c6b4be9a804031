"""How long to wait after the n-th failure, before jitter. Six small values, each a formula with a cap.

Every field may be left out (UNSET), so that values merge field by field; None means "left out" too. Whatever is given is checked
at once. The cap is compared before the power is taken, so each formula is total: finite, positive and never falling for any n.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from mulligan.core.errors import BadPolicy
from mulligan.policy.checks import SECONDS_MIN, brief, checked_function, checked_n, checked_number, checked_seconds, shown, span

CAP_DEFAULT = 900
FACTOR_MAX = 1_000
POWER_MAX = 100
DELAYS_MAX = 1_000

Given = float | UnsetType | None
Measured = tuple[float, str]  # the delay in seconds, and how it came about
_Shape = TypeVar("_Shape", bound="Formula")


class Formula(msgspec.Struct, frozen=True):
    """What the backoffs made of named numbers share: checking, merging, filling in."""

    defaults: ClassVar[dict[str, float]]
    kind: ClassVar[str]

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is None:
                msgspec.structs.force_setattr(self, name, UNSET)
            elif value is not UNSET:
                msgspec.structs.force_setattr(self, name, self._checked(name, value))
        first = self.__struct_fields__[0]
        start, cap = getattr(self, first), getattr(self, "cap", UNSET)
        if start is not UNSET and cap is not UNSET and start > cap:
            raise BadPolicy(f"backoff {first} ({span(start)}) must not be above backoff cap ({span(cap)}); raise cap or lower {first}")

    def _checked(self, name: str, value: object) -> float:
        field = f"backoff {name}"
        if name == "factor":
            return checked_number(value, field, 1, FACTOR_MAX, "")
        if name == "power":
            return checked_number(value, field, SECONDS_MIN, POWER_MAX, "")
        return checked_seconds(value, field)

    def numbers(self) -> list[float]:
        """The fields in their order, defaults filled in."""
        return [self.defaults[name] if (value := getattr(self, name)) is UNSET else value for name in self.__struct_fields__]

    def filled(self: _Shape) -> _Shape:
        """The same formula with nothing left out; BadPolicy if the fields contradict each other."""
        return type(self)(*self.numbers())

    def over(self: _Shape, base: Backoff) -> _Shape:
        """This one, with what it leaves out taken from a base of the same kind."""
        if type(base) is not type(self):
            return self
        mine = [getattr(self, name) for name in self.__struct_fields__]
        theirs = [getattr(base, name) for name in self.__struct_fields__]
        return type(self)(*(other if own is UNSET else own for own, other in zip(mine, theirs, strict=True)))

    @property
    def start(self) -> float:
        """The shortest wait the formula knows."""
        return self.numbers()[0]

    @property
    def ceiling(self) -> float:
        """The longest wait, also after jitter."""
        return self.numbers()[-1]


class Exponential(Formula, frozen=True):
    """base, base x factor, base x factor^2 ... up to cap seconds."""

    base: Given = UNSET
    factor: Given = UNSET
    cap: Given = UNSET

    defaults: ClassVar[dict[str, float]] = {"base": 1, "factor": 2, "cap": CAP_DEFAULT}
    kind: ClassVar[str] = "exponential"

    def measure(self, n: int) -> Measured:
        """The wait after the n-th failure in seconds, and its formula in words."""
        base, factor, cap = self.numbers()
        n = checked_n(n)
        how = f"exponential {span(base)} x {factor:g}^({n}-1)"
        # Logarithms tell that the cap is reached without taking the power.
        if factor > 1 and n - 1 >= math.log(cap / base) / math.log(factor):
            return _capped(cap, how)
        return _below_cap(base * factor ** (n - 1), cap, how)


class Linear(Formula, frozen=True):
    """step, 2 x step, 3 x step ... up to cap seconds."""

    step: Given = UNSET
    cap: Given = UNSET

    defaults: ClassVar[dict[str, float]] = {"step": 5, "cap": CAP_DEFAULT}
    kind: ClassVar[str] = "linear"

    def measure(self, n: int) -> Measured:
        """The wait after the n-th failure in seconds, and its formula in words."""
        step, cap = self.numbers()
        n = checked_n(n)
        how = f"linear {span(step)} x {n}"
        return _capped(cap, how) if n >= cap / step else _below_cap(step * n, cap, how)


class Polynomial(Formula, frozen=True):
    """base x 1, base x 2^power, base x 3^power ... up to cap seconds."""

    base: Given = UNSET
    power: Given = UNSET
    cap: Given = UNSET

    defaults: ClassVar[dict[str, float]] = {"base": 1, "power": 2, "cap": CAP_DEFAULT}
    kind: ClassVar[str] = "polynomial"

    def measure(self, n: int) -> Measured:
        """The wait after the n-th failure in seconds, and its formula in words."""
        base, power, cap = self.numbers()
        n = checked_n(n)
        how = f"polynomial {span(base)} x {n}^{power:g}"
        return _capped(cap, how) if math.log(n) * power >= math.log(cap / base) else _below_cap(base * n**power, cap, how)


class Constant(Formula, frozen=True):
    """The same wait each time."""

    delay: Given = UNSET

    defaults: ClassVar[dict[str, float]] = {"delay": 5}
    kind: ClassVar[str] = "constant"

    def measure(self, n: int) -> Measured:
        """The wait after the n-th failure in seconds, and its formula in words."""
        checked_n(n)
        delay = self.start
        return delay, f"constant {span(delay)}"

    @property
    def ceiling(self) -> float:
        """The default cap, so that jitter has room on both sides of the delay."""
        return max(self.start, CAP_DEFAULT)


class Delays:
    """These waits one after the other; the last one repeats. They may not fall: a longer trouble is not a reason to hurry.

    Not a Struct like the others, because a Struct cannot take any number of positional values.
    """

    __slots__ = ("seconds",)
    kind: ClassVar[str] = "delays"
    seconds: tuple[float, ...]

    def __init__(self, *seconds: float) -> None:
        if not 1 <= len(seconds) <= DELAYS_MAX:
            raise BadPolicy(f"backoff Delays must list 1 to {DELAYS_MAX} delays, not {len(seconds)}")
        checked = tuple(checked_seconds(delay, f"backoff delay {place}") for place, delay in enumerate(seconds, start=1))
        for place, (delay, following) in enumerate(pairwise(checked), start=1):
            if following < delay:
                raise BadPolicy(f"backoff delay {place + 1} ({span(following)}) must not be below delay {place} ({span(delay)}) of Delays")
        object.__setattr__(self, "seconds", checked)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Delays is frozen; make a new one instead of setting {name} to {shown(value)}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Delays) and other.seconds == self.seconds

    def __hash__(self) -> int:
        return hash(self.seconds)

    def __repr__(self) -> str:
        return f"Delays({', '.join(map(repr, self.seconds))})"

    def numbers(self) -> list[float]:
        """The delays, in their order."""
        return list(self.seconds)

    def filled(self) -> Delays:
        """The list itself: it has no fields that could be left out."""
        return self

    def over(self, base: Backoff) -> Delays:  # noqa: ARG002 - one signature for all backoffs
        """The list itself: it wins as a whole."""
        return self

    def measure(self, n: int) -> Measured:
        """The wait after the n-th failure in seconds, and its place in the list."""
        place = min(checked_n(n), len(self.seconds))
        last = ", the last one, which repeats" if n > place else ""
        return self.seconds[place - 1], f"delay {place} of the list{last}"

    @property
    def start(self) -> float:
        """The first delay."""
        return self.seconds[0]

    @property
    def ceiling(self) -> float:
        """The default cap, so that jitter has room on both sides of a delay."""
        return max(self.seconds[-1], CAP_DEFAULT)


class Custom(msgspec.Struct, frozen=True):
    """A function of yours, from n to seconds, cut to cap. It is code, so it is not stored with the job.

    Where the function is not at hand or misbehaves (raises, or answers anything but a finite number from 0 up),
    an exponential backoff under the same cap takes its place: a failure path must not fail.
    """

    function: Callable[[int], float]
    cap: Given = UNSET

    kind: ClassVar[str] = "custom"

    def __post_init__(self) -> None:
        checked_function(self.function, "backoff function")
        cap: Any = UNSET if self.cap is None or self.cap is UNSET else checked_seconds(self.cap, "backoff cap")
        msgspec.structs.force_setattr(self, "cap", cap)

    def numbers(self) -> list[float]:
        """The cap, the one number a function has."""
        return [self.ceiling]

    def filled(self) -> Custom:
        """The same function with its cap filled in."""
        return Custom(self.function, self.ceiling)

    def over(self, base: Backoff) -> Custom:
        """This function; its cap, if left out, from a base that is a function too."""
        return Custom(self.function, base.cap if self.cap is UNSET and isinstance(base, Custom) else self.cap)

    @property
    def stand_in(self) -> Exponential:
        """What decides where the function cannot."""
        return Exponential(min(Exponential.defaults["base"], self.ceiling), None, self.ceiling)

    @property
    def start(self) -> float:
        """The first wait of the stand-in: the function itself promises none."""
        return self.stand_in.start

    @property
    def ceiling(self) -> float:
        """The cap."""
        return CAP_DEFAULT if self.cap is UNSET or self.cap is None else self.cap

    def measure(self, n: int) -> Measured:
        """The wait after the n-th failure in seconds, and who chose it. Never raises for a valid n."""
        checked_n(n)
        try:
            answer: object = self.function(n)
        except (Exception, SystemExit) as problem:  # noqa: BLE001 - whatever the user's function does, a delay must come out
            return self._instead(n, f"raised {type(problem).__name__}")
        # An integer may be too large for a float, so it is compared before it is converted.
        if isinstance(answer, bool) or not isinstance(answer, (int, float)) or not 0 <= answer < math.inf:
            return self._instead(n, f"answered {brief(answer)}")
        if answer > self.ceiling:
            return _capped(self.ceiling, "the task's delay function")
        return max(SECONDS_MIN, float(answer)), f"the task's delay function gave {span(answer)}"

    def _instead(self, n: int, trouble: str) -> Measured:
        delay, how = self.stand_in.measure(n)
        return delay, f"the task's delay function {trouble}, so the frozen numbers decide: {how}"


Backoff = Exponential | Linear | Polynomial | Constant | Delays | Custom
KINDS: dict[str, type[Exponential | Linear | Polynomial | Constant | Delays]] = {
    shape.kind: shape for shape in (Exponential, Linear, Polynomial, Constant, Delays)
}


def measured(backoff: Backoff, n: int) -> tuple[float, str, float, float]:
    """The wait after the n-th failure and how it came about; the backoff's start and its ceiling."""
    if isinstance(backoff, Formula):
        return _formula_measured(backoff, n)
    return (*backoff.measure(n), backoff.start, backoff.ceiling)


# A formula always gives the same answer, and a storm of failures asks for the same few. (typed: what is no integer is still refused)
@lru_cache(maxsize=1_000, typed=True)
def _formula_measured(formula: Exponential | Linear | Polynomial | Constant, n: int) -> tuple[float, str, float, float]:
    return (*formula.measure(n), formula.start, formula.ceiling)


def _capped(cap: float, how: str) -> Measured:
    return cap, f"{how}, capped at {span(cap)}"


def _below_cap(delay: float, cap: float, how: str) -> Measured:
    # Rounding can lift a delay just over a cap that the comparison before the power saw as not yet reached.
    return min(delay, cap), f"{how} = {span(delay)}"
