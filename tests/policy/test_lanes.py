from __future__ import annotations

import math
from typing import Any

import pytest

from mulligan.core.errors import BadSetting
from mulligan.policy.lanes import Fifo, FreshFirst, RetryFirst, Weighted
from mulligan.policy.queues import Queue
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
        ({"claim": "fifo"}, "queue q: claim must be Weighted(...), RetryFirst(), FreshFirst() or Fifo(), not 'fifo'"),
        (
            {"claim": Fifo},
            "queue q: claim must be Weighted(...), RetryFirst(), FreshFirst() or Fifo(), not <class 'mulligan.policy.lanes.Fifo'>",
        ),
        ({"retry": 3}, "queue q: retry must be a RetryPolicy, not 3"),
        ({"hold_slot_up_to": -1}, "queue q: hold_slot_up_to must be a number of seconds from 0 to 3600, not -1"),
        ({"hold_slot_up_to": 3_601}, "queue q: hold_slot_up_to must be a number of seconds from 0 to 3600, not 3601"),
        ({"hold_slot_up_to": math.nan}, "queue q: hold_slot_up_to must be a number of seconds from 0 to 3600, not nan"),
        ({"hold_slot_up_to": True}, "queue q: hold_slot_up_to must be a number of seconds from 0 to 3600, not True"),
        ({"hold_slot_up_to": "2"}, "queue q: hold_slot_up_to must be a number of seconds from 0 to 3600, not '2'"),
        (
            {"concurrency": 20},
            "queue q: concurrency is a limit for the whole fleet, which no store keeps yet; "
            "leave it out (worker(concurrency=) limits one process)",
        ),
        (
            {"max_inflight_retries": 5},
            "queue q: max_inflight_retries is a limit for the whole fleet, which no store keeps yet; "
            "leave it out (worker(concurrency=) limits one process)",
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
