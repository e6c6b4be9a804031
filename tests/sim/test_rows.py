"""Each invariant over one row can fail: a row that breaks it is seen, and one that keeps it is not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mulligan.core.job import HistoryRecord
from mulligan.sim.safety import ROW_CHECKS
from mulligan.sim.watch import Broken
from tests.sim.desk import Desk

RECORD = HistoryRecord(generation=1, fence=1, attempt=1, outcome="failure")


def test_a_good_history_passes() -> None:
    """Two jobs, both claimed: nothing is wrong, and every check over a row was made."""
    desk = Desk()
    desk.claim(desk.insert(), desk.insert())
    assert desk.watch.broken is None
    assert {rule for rule, _ in ROW_CHECKS} <= set(desk.watch.checks)


@pytest.mark.parametrize(
    ("rule", "wrong"),
    [
        ("S3", {"fence": 2}),
        ("S3", {"fence": 0}),
        ("S12", {"lease_owner": None}),
        ("S12", {"lease_expires_at_us": 0}),
        ("S12", {"claim_id": None}),
        ("S12", {"run_at_us": 5}),
        ("S12", {"finished_at_us": 5}),
        ("S7", {"attempts": 2}),
        ("S7", {"failures": 1}),
        ("S8", {"crashes": 1}),
        ("S5", {"generation": 2}),
        ("S13", {"history": (RECORD,)}),
        ("S4", {"lane": "retry"}),
        ("S4", {"payload": "other"}),
        ("S4", {"cancel_requested": True}),
    ],
)
def test_a_claim_that_writes_something_else_is_seen(rule: str, wrong: dict[str, Any]) -> None:
    """A row with one field that no claim asked for."""
    desk = Desk()
    account = desk.insert()
    with pytest.raises(Broken) as seen:
        desk.claim(account, **wrong)
    assert seen.value.rule == rule


def test_a_write_nobody_asked_for_is_seen() -> None:
    """A finished job comes back to life by itself (S5), a waiting one is cancelled by nobody (S4)."""
    desk = Desk()
    account = desk.insert()
    row = desk.rows[account.new.id]
    desk.rows[row.id] = replace(row, status="cancelled", run_at_us=None, finished_at_us=1)
    with pytest.raises(Broken, match=r"S(4|12)"):
        desk.watch.row_changes()


def test_a_finished_job_that_is_written_again_is_seen() -> None:
    """S5: done stays done."""
    desk = Desk()
    account = desk.insert()
    desk.claim(account)
    done = replace(
        desk.rows[account.new.id],
        status="done",
        lease_owner=None,
        lease_expires_at_us=None,
        claim_id=None,
        finished_at_us=desk.clock.now_us(),
    )
    account.status, account.finished_us = "done", desk.clock.now_us()
    desk.rows[account.new.id] = done
    desk.watch.row_changes()
    desk.rows[account.new.id] = replace(done, updated_at_us=1)
    with pytest.raises(Broken, match="S5"):
        desk.watch.row_changes()


def test_a_result_that_is_not_the_handlers_is_seen() -> None:
    """S19: what a done job returned is what the handler returned."""
    desk = Desk()
    account = desk.insert()
    desk.claim(account)
    account.status, account.finished_us, account.result_json = "done", desk.clock.now_us(), "1"
    desk.rows[account.new.id] = replace(
        desk.rows[account.new.id], status="done", lease_owner=None, lease_expires_at_us=None, claim_id=None, result_json="2",
        finished_at_us=desk.clock.now_us(),
    )  # fmt: skip
    with pytest.raises(Broken, match="S19"):
        desk.watch.row_changes()


def test_a_job_that_waits_though_it_is_cancelled_is_seen() -> None:
    """S20."""
    desk = Desk()
    account = desk.insert()
    account.cancel_requested = True
    desk.rows[account.new.id] = replace(desk.rows[account.new.id], cancel_requested=True)
    with pytest.raises(Broken, match="S20"):
        desk.watch.row_changes()


def test_a_job_that_is_gone_is_seen() -> None:
    """S9: what was stored stays until it is pruned."""
    desk = Desk()
    desk.rows.pop(desk.insert().new.id)
    with pytest.raises(Broken, match="S9"):
        desk.watch.row_changes()


def test_a_job_that_nobody_enqueued_is_seen() -> None:
    """S9, from the other side."""
    desk = Desk()
    account = desk.insert()
    desk.rows["stranger"] = replace(desk.rows[account.new.id], id="stranger")
    with pytest.raises(Broken, match="S9"):
        desk.watch.row_changes()
