"""Queue: the settings of one queue, checked when made, and the limits that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from mulligan.core.codec import check_name
from mulligan.core.errors import BadSetting
from mulligan.core.groups import FAIR
from mulligan.core.limits import Limit, Slots
from mulligan.policy.budget import WEIGHTED_IS_FOR_QUEUES, Rate, RetryBudget
from mulligan.policy.budget_text import name_of_budget, name_of_rate, read_budget, read_rate
from mulligan.policy.checks import shown
from mulligan.policy.lanes import SLOTS_MAX, Separate, Strategy, Weighted, name_of_strategy, read_strategy
from mulligan.policy.retry import RetryPolicy

HOLD_MAX_S = 3_600
EACH = " each"  # ends the key of buckets that there is one of for each tenant: no name has a space, so none can look like another


class Queue(msgspec.Struct, frozen=True):
    """How the jobs of one queue are claimed and, unless their task says otherwise, retried.

    Everything but `hold_slot_up_to` is for the whole fleet, and is kept by the store. All workers of a queue should be given the same
    settings; `app.configure` changes them for all at once, while they run.
    """

    name: str
    claim: Strategy = Weighted()
    retry: RetryPolicy | None = None
    hold_slot_up_to: float = 0.0  # a worker keeps its slot empty through a backoff of up to so many seconds
    concurrency: int | None = None  # jobs of this queue that may run at once
    max_inflight_retries: int | None = None  # retries of this queue that may run at once
    key_concurrency: int = 1  # jobs with the same concurrency_key that may run at once
    rate: Rate | None = None  # starts over time
    budget: RetryBudget | None = None  # starts of retries over time

    def __post_init__(self) -> None:
        check_name(self.name, "queue")
        if not isinstance(self.claim, Strategy):
            raise BadSetting(
                f"queue {self.name}: claim must be Weighted(...), RetryFirst(), FreshFirst(), Fifo() or Separate(...), "
                f"not {shown(self.claim)}"
            )
        _check_type(self.name, "retry", self.retry, RetryPolicy)
        _check_type(self.name, "rate", self.rate, Rate)
        _check_type(self.name, "budget", self.budget, RetryBudget)
        if self.budget is not None and self.budget.each_tenant and self.budget.over == "weighted":
            raise BadSetting(f"queue {self.name}: {WEIGHTED_IS_FOR_QUEUES}")
        hold = self.hold_slot_up_to
        if isinstance(hold, bool) or not isinstance(hold, (int, float)) or not 0 <= hold <= HOLD_MAX_S:
            raise BadSetting(f"queue {self.name}: hold_slot_up_to must be a number of seconds from 0 to {HOLD_MAX_S}, not {shown(hold)}")
        for field in ("concurrency", "max_inflight_retries", "key_concurrency"):
            slots = getattr(self, field)
            if slots is None and field != "key_concurrency":
                continue
            if isinstance(slots, bool) or not isinstance(slots, int) or not 1 <= slots <= SLOTS_MAX:
                raise BadSetting(
                    f"queue {self.name}: {field} must be a whole number from 1 to {SLOTS_MAX:,}, not {shown(slots)}; "
                    "to stop a queue, pause it"
                )

    @property
    def limits(self) -> tuple[Limit, ...]:
        """What the claims of this queue must keep."""
        found: list[Limit] = []
        if self.concurrency is not None:
            found.append(Slots(most=self.concurrency))
        if self.max_inflight_retries is not None:
            found.append(Slots(most=self.max_inflight_retries, lane="retry"))
        if isinstance(self.claim, Separate):
            found.append(Slots(most=self.claim.retry_concurrency, lane="retry"))
        if self.rate is not None:
            found.append(self.rate.bucket(f"rate:queue:{self.name}"))
        if self.budget is not None:
            found.append(
                self.budget.bucket(f"budget:tenant:{self.name}{EACH}", part=FAIR)
                if self.budget.each_tenant
                else self.budget.bucket(f"budget:queue:{self.name}")
            )
        found.append(Slots(most=self.key_concurrency, by_key=True))
        return tuple(found)


def _check_type(queue: str, field: str, value: object, kind: type) -> None:
    if value is not None and not isinstance(value, kind):
        raise BadSetting(f"queue {queue}: {field} must be a {kind.__name__}(...), not {shown(value)}")


# --- settings changed while workers run ------------------------------------------------------------------------------

CHANGEABLE = ("claim", "concurrency", "max_inflight_retries", "key_concurrency", "rate", "budget")
_READERS: dict[str, Callable[[str], Any]] = {"claim": read_strategy, "rate": read_rate, "budget": read_budget}
_WRITERS: dict[str, Callable[[Any], str]] = {"claim": name_of_strategy, "rate": name_of_rate, "budget": name_of_budget}


class _Changes(msgspec.Struct, frozen=True, omit_defaults=True):
    """The note of a queue. `by` tells who wrote it; `mark` makes every write differ from all others."""

    claim: str | msgspec.UnsetType = msgspec.UNSET
    concurrency: int | None | msgspec.UnsetType = msgspec.UNSET
    max_inflight_retries: int | None | msgspec.UnsetType = msgspec.UNSET
    key_concurrency: int | msgspec.UnsetType = msgspec.UNSET
    rate: Rate | None | msgspec.UnsetType = msgspec.UNSET
    budget: RetryBudget | None | msgspec.UnsetType = msgspec.UNSET
    by: str = ""
    mark: str = ""


_decoder = msgspec.json.Decoder(_Changes)


def checked_changes(queue: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changed settings as a Queue takes them, also where they were given as texts; BadSetting if they make no sense."""
    unknown = sorted(set(changes) - set(CHANGEABLE))
    if unknown:
        raise BadSetting(f"{', '.join(unknown)} cannot be changed while workers run; known: {', '.join(CHANGEABLE)}")
    read = {name: _READERS[name](value) if name in _READERS and isinstance(value, str) else value for name, value in changes.items()}
    Queue(queue, **read)
    return read


def plain_changes(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changed settings as people type them, in the order of the settings: texts, numbers and None."""
    in_order = {name: changes[name] for name in CHANGEABLE if name in changes}
    return {name: _WRITERS[name](value) if name in _WRITERS and value is not None else value for name, value in in_order.items()}


def write_changes(queue: str, changes: Mapping[str, Any], *, by: str = "", mark: str = "") -> str:
    """Changed settings as the text of a note; BadSetting if they make no sense."""
    read = checked_changes(queue, changes)
    if "claim" in read:
        read["claim"] = name_of_strategy(read["claim"])
    return msgspec.json.encode(_Changes(**read, by=by, mark=mark)).decode()


def read_changes(queue: str, text: str | None) -> tuple[dict[str, Any], str]:
    """The changed settings a note holds, as a Queue takes them, and who wrote it; BadSetting if it cannot be read."""
    if not text:
        return {}, ""
    try:
        changes = _decoder.decode(text)
        given: dict[str, Any] = {name: value for name in CHANGEABLE if (value := getattr(changes, name)) is not msgspec.UNSET}
        return checked_changes(queue, given), changes.by
    except (msgspec.DecodeError, UnicodeError, RecursionError, BadSetting) as problem:
        raise BadSetting(f"queue {queue}: its stored settings cannot be read: {problem}") from problem


def with_changes(queue: Queue, text: str | None) -> Queue:
    """A queue as its code sets it, with what a note changes; BadSetting if the note cannot be read."""
    given, _ = read_changes(queue.name, text)
    return msgspec.structs.replace(queue, **given) if given else queue
