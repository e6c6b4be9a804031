from __future__ import annotations

import math
from typing import Any

import pytest

from mulligan.core.errors import BadSetting
from mulligan.core.groups import FAIR
from mulligan.core.limits import Limit, Slots
from mulligan.policy.budget import Rate, RetryBudget
from mulligan.policy.lanes import Fifo, FreshFirst, RetryFirst, Separate, Strategy, Weighted, name_of_strategy, read_strategy
from mulligan.policy.queues import CHANGEABLE, Queue, with_changes, write_changes
from mulligan.policy.retry import RetryPolicy


@pytest.mark.parametrize("share", [0, 1, -0.2, 1.2, math.nan, math.inf, True, "0.2", None], ids=repr)
def test_w06_share_lies_between_nothing_and_everything(share: Any) -> None:
    """W06: both lanes have a share, so neither nothing nor everything is one."""
    with pytest.raises(BadSetting) as refusal:
        Weighted(share)
    assert str(refusal.value) == f"retry_share must be a number above 0 and below 1, not {share!r}"


def test_w11_default_share_is_a_fifth() -> None:
    """W06, W11: 80 % fresh, 20 % retries, unless set."""
    assert Weighted().retry_share == 0.2
    assert Weighted(retry_share=0.5).retry_share == 0.5
    assert Queue("q").claim == Weighted(0.2)
    assert Queue("q").hold_slot_up_to == 0


def test_queue_keeps_its_settings() -> None:
    """Everything that is valid is kept as given."""
    policy = RetryPolicy(max_retries=1)
    for claim in (Weighted(0.3), RetryFirst(), FreshFirst(), Fifo()):
        queue = Queue("billing", claim=claim, retry=policy, hold_slot_up_to=2)
        assert (queue.name, queue.claim, queue.retry, queue.hold_slot_up_to) == ("billing", claim, policy, 2)
    assert Queue("q", hold_slot_up_to=3_600).hold_slot_up_to == 3_600


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"claim": "fifo"}, "queue q: claim must be Weighted(...), RetryFirst(), FreshFirst(), Fifo() or Separate(...), not 'fifo'"),
        (
            {"claim": Fifo},
            "queue q: claim must be Weighted(...), RetryFirst(), FreshFirst(), Fifo() or Separate(...), "
            "not <class 'mulligan.policy.lanes.Fifo'>",
        ),
        ({"retry": 3}, "queue q: retry must be a RetryPolicy(...), not 3"),
        ({"hold_slot_up_to": -1}, "queue q: hold_slot_up_to must be a number of seconds from 0 to 3600, not -1"),
        ({"hold_slot_up_to": 3_601}, "queue q: hold_slot_up_to must be a number of seconds from 0 to 3600, not 3601"),
        ({"hold_slot_up_to": math.nan}, "queue q: hold_slot_up_to must be a number of seconds from 0 to 3600, not nan"),
        ({"hold_slot_up_to": True}, "queue q: hold_slot_up_to must be a number of seconds from 0 to 3600, not True"),
        ({"hold_slot_up_to": "2"}, "queue q: hold_slot_up_to must be a number of seconds from 0 to 3600, not '2'"),
        ({"rate": 3}, "queue q: rate must be a Rate(...), not 3"),
        ({"budget": Rate(per_s=1)}, f"queue q: budget must be a RetryBudget(...), not {Rate(per_s=1)!r}"),
        *(
            (
                {field: slots},
                f"queue q: {field} must be a whole number from 1 to 1,000,000, not {slots!r}; to stop a queue, pause it",
            )
            for field in ("concurrency", "max_inflight_retries", "key_concurrency")
            for slots in (0, -1, 1_000_001, True, 2.5, "3")
        ),
        (
            {"key_concurrency": None},
            "queue q: key_concurrency must be a whole number from 1 to 1,000,000, not None; to stop a queue, pause it",
        ),
    ],
)
def test_o08_bad_or_missing_settings_fail_loudly(fields: dict[str, Any], message: str) -> None:
    """O08: what cannot be kept is refused when the queue is made, not ignored."""
    with pytest.raises(BadSetting) as refusal:
        Queue("q", **fields)
    assert str(refusal.value) == message


def test_queue_needs_a_valid_name() -> None:
    """The name is a key in every store."""
    with pytest.raises(BadSetting, match="^queue 'a b' is not a valid name"):
        Queue("a b")


ALONE = Slots(most=1, by_key=True)


@pytest.mark.parametrize(
    ("fields", "limits"),
    [
        ({}, [ALONE]),
        ({"key_concurrency": 4}, [Slots(most=4, by_key=True)]),
        ({"concurrency": 20}, [Slots(most=20), ALONE]),
        ({"max_inflight_retries": 5}, [Slots(most=5, lane="retry"), ALONE]),
        ({"claim": Separate(3)}, [Slots(most=3, lane="retry"), ALONE]),
        ({"rate": Rate(per_s=2)}, [Rate(per_s=2).bucket("rate:queue:q"), ALONE]),
        ({"budget": RetryBudget(per_s=2)}, [RetryBudget(per_s=2).bucket("budget:queue:q"), ALONE]),
        (
            {"budget": RetryBudget(per_s=2, each_tenant=True)},
            [RetryBudget(per_s=2, each_tenant=True).bucket("budget:tenant:q each", part=FAIR), ALONE],
        ),
    ],
)
def test_queue_limits(fields: dict[str, Any], limits: list[Limit]) -> None:
    """W07, W08: every setting of a queue that bounds its jobs becomes a limit the store keeps."""
    assert list(Queue("q", **fields).limits) == limits


@pytest.mark.parametrize("given", [0, -1, 1_000_001, True, 1.5, None])
def test_separate_needs_a_concurrency(given: Any) -> None:
    """W07: a lane of its own has room for at least one."""
    with pytest.raises(BadSetting, match="^retry_concurrency must be a whole number from 1 to 1,000,000, not "):
        Separate(given)
    assert Separate().retry_concurrency == 1


@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        ("weighted(0.2)", Weighted(0.2)),
        ("weighted(0.35)", Weighted(0.35)),
        ("retry_first", RetryFirst()),
        ("fresh_first", FreshFirst()),
        ("fifo", Fifo()),
        ("separate(5)", Separate(5)),
    ],
)
def test_strategies_are_written_and_read(text: str, strategy: Strategy) -> None:
    """What people write for a strategy and what is shown of it are the same."""
    assert read_strategy(text) == strategy
    assert name_of_strategy(strategy) == text


def test_strategies_are_read_with_tolerance() -> None:
    """Without a number a strategy has its default; dashes are as good as underscores."""
    assert read_strategy(" retry-first ") == RetryFirst()
    assert read_strategy("weighted") == Weighted()
    assert read_strategy("separate") == Separate()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "oldest",
            "claim must be one of weighted, retry_first, fresh_first, fifo, separate, such as weighted(0.2) or separate(5), not 'oldest'",
        ),
        ("weighted(much)", "weighted takes a number: 'weighted(much)' is not one"),
        ("separate(1.5)", "separate takes a number: 'separate(1.5)' is not one"),
        ("fifo(3)", "fifo takes no number: 'fifo(3)' is not one"),
        ("weighted(2)", "retry_share must be a number above 0 and below 1, not 2.0"),
    ],
)
def test_strategies_that_do_not_exist(text: str, message: str) -> None:
    """The error says what can be written."""
    with pytest.raises(BadSetting) as refusal:
        read_strategy(text)
    assert str(refusal.value) == message


def test_changes_of_a_queue_are_written_and_read() -> None:
    """What an operator changes comes over what the code says; the rest stays."""
    code = Queue("q", claim=RetryFirst(), concurrency=5, retry=RetryPolicy(max_retries=1))
    budget = RetryBudget(ratio=0.2, min_per_s=10)
    text = write_changes("q", {"claim": "weighted(0.3)", "max_inflight_retries": 2, "budget": budget, "rate": Rate(per_minute=6)})
    assert with_changes(code, text) == Queue(
        "q",
        claim=Weighted(0.3),
        concurrency=5,
        retry=RetryPolicy(max_retries=1),
        max_inflight_retries=2,
        budget=budget,
        rate=Rate(per_minute=6),
    )
    assert with_changes(code, write_changes("q", {"concurrency": None})).concurrency is None
    assert with_changes(code, None) is code
    assert with_changes(code, write_changes("q", {"claim": Separate(2)})).claim == Separate(2)


def test_every_changeable_setting_can_be_changed() -> None:
    """No name in the list without an effect."""
    values: dict[str, Any] = {
        "claim": Fifo(),
        "concurrency": 3,
        "max_inflight_retries": 2,
        "key_concurrency": 4,
        "rate": Rate(per_s=1),
        "budget": RetryBudget(per_s=1),
    }
    assert set(values) == set(CHANGEABLE)
    for name, value in values.items():
        assert getattr(with_changes(Queue("q"), write_changes("q", {name: value})), name) == value


def test_changes_that_make_no_sense() -> None:
    """Refused when they are written; a note that cannot be read says so."""
    with pytest.raises(BadSetting, match="^hold_slot_up_to cannot be changed while workers run; known: claim, concurrency, "):
        write_changes("q", {"hold_slot_up_to": 3})
    with pytest.raises(BadSetting, match="concurrency must be a whole number"):
        write_changes("q", {"concurrency": 0})
    with pytest.raises(BadSetting, match="^queue q: its stored settings cannot be read: "):
        with_changes(Queue("q"), "{")
