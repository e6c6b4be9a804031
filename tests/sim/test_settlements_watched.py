"""The rules for settlements, inserts, cancels, ticks and removals can fail."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mulligan.core.change import Change, Dead, Held, Lapsed, Verdict
from mulligan.core.contract import Inserted
from mulligan.core.job import ErrorInfo, HistoryRecord, NewJob
from mulligan.core.schedule import Schedule, Tick
from mulligan.sim.account import Account, Ending
from mulligan.sim.filing import saw_cancel, saw_fire, saw_get, saw_insert, saw_prune
from mulligan.sim.settling import saw_settle
from mulligan.sim.watch import Broken
from mulligan.sim.wire import hears, sends
from tests.sim.desk import LEASE_US, Desk

ERROR = ErrorInfo(type="ValueError", message="no")


def change_of(account: Account, cause: Any, **fields: Any) -> Change:
    """A change by the holder of fence 1, as it ought to be for a first failure unless it is told otherwise."""
    record = HistoryRecord(generation=1, fence=1, attempt=1, outcome=cause, error=ERROR)
    given = {"status": "pending", "lane": "retry", "attempts": 1, "failures": 1, "crashes": 0, "snoozes": 0, "releases": 0, "generation": 1,
             "delay_us": 500_000, "guard": Held(1), "settle_id": "s", "error": ERROR, "record": record, **fields}  # fmt: skip
    return Change(job_id=account.new.id, queue="one", task="work", cause=cause, **given)


def settle(desk: Desk, account: Account, change: Change, *, applied: bool = True) -> None:
    """Tells the watch of a settlement; the row is not looked at, the change is."""
    verdict = Verdict(job_id=account.new.id, applied=applied, status=change.status)
    saw_settle(desk.watch, [change], answer=[verdict], process=desk.process)


def started(kind: Any = "error", **fields: Any) -> tuple[Desk, Account]:
    """A job whose handler has ended so."""
    desk = Desk()
    account = desk.insert(**fields)
    desk.claim(account)
    desk.watch.starts(desk.rows[account.new.id], desk.process)
    desk.watch.ends(account, 1, Ending(kind), desk.process, obeys=True)
    desk.watch.must_change = lambda account: None  # type: ignore[method-assign]
    return desk, account


def test_a_first_failure_passes() -> None:
    """The change that the others here are made from is in order."""
    desk, account = started()
    settle(desk, account, change_of(account, "failure"))
    assert desk.watch.broken is None


@pytest.mark.parametrize(
    ("rule", "cause", "fields"),
    [
        ("S6", "success", {"status": "done", "failures": 0}),  # the handler raised
        ("S6", "snooze", {"snoozes": 1, "attempts": 0, "failures": 0}),
        ("S6", "release", {"releases": 1, "attempts": 0, "failures": 0, "lane": "fresh"}),  # it had started
        ("S6", "timeout", {}),
        ("S6", "retry asked", {}),
        ("S6", "unstorable", {"status": "failed"}),
        ("S7", "failure", {"attempts": 2}),
        ("S7", "failure", {"attempts": 0}),
        ("S7", "failure", {"failures": 2}),
        ("S7", "failure", {"generation": 2}),
        ("S7", "failure", {"status": "failed"}),  # it may run again
        ("S16", "failure", {"delay_us": 0}),
        ("S16", "failure", {"delay_us": 1_000_001}),
        ("S13", "failure", {"record": None}),
        ("S13", "failure", {"error": None}),
        ("S12", "failure", {"lane": "fresh"}),
        ("S22", "crash", {"crashes": 1, "failures": 0, "delay_us": 0}),  # by its holder, while the lease lasts
    ],
)
def test_a_wrong_outcome_is_seen(rule: str, cause: str, fields: dict[str, Any]) -> None:
    """A change that does not follow from what the handler did, or from the policy."""
    desk, account = started()
    with pytest.raises(Broken) as seen:
        settle(desk, account, change_of(account, cause, **fields))
    assert seen.value.rule == rule


@pytest.mark.parametrize(
    ("rule", "cause", "fields"),
    [
        ("S4", "failure", {"guard": Held(0)}),
        ("S4", "failure", {"guard": Dead(1)}),
        ("S6", "success", {"status": "done", "failures": 0}),
        ("S7", "failure", {"attempts": 2}),
        ("S7", "failure", {"status": "failed"}),
    ],
)
@pytest.mark.parametrize("stepped_s", [20.0, -5.0])
def test_a_wrong_outcome_is_seen_after_a_step_of_the_clock(rule: str, cause: str, fields: dict[str, Any], stepped_s: float) -> None:
    """S23: no step excuses it; and what is checked after one is counted."""
    desk, account = started()
    desk.step(stepped_s)
    counted = desk.watch.checks["S23"]
    with pytest.raises(Broken) as seen:
        settle(desk, account, change_of(account, cause, **fields))
    assert seen.value.rule == rule
    assert rule == "S4" or desk.watch.checks["S23"] > counted


MAX_AGE_US = 6_000_000


def aged(at_s: float, kind: Any = None, **fields: Any) -> tuple[Desk, Account]:
    """A job with a maximum age that was claimed at an age of `at_s`; its handler has ended so, or was not started."""
    desk = Desk()
    account = desk.insert(max_age_us=MAX_AGE_US, **fields)
    desk.clock.advance(at_s)
    desk.claim(account)
    if kind is not None:
        desk.watch.starts(desk.rows[account.new.id], desk.process)
        desk.watch.ends(account, 1, Ending(kind), desk.process, obeys=True)
    desk.watch.must_change = lambda account: None  # type: ignore[method-assign]
    return desk, account


EXPIRED: dict[str, Any] = {"status": "failed", "failures": 0}


def test_an_expiry_before_its_time_is_seen() -> None:
    """S7: a job that is not run for its age has that age, to the microsecond; a clock that runs fast may be so much ahead, and no more."""
    desk, account = aged(6)
    settle(desk, account, change_of(account, "expired", **EXPIRED))
    desk, account = aged(5.9)
    with pytest.raises(Broken, match="S7: expired ends it as too old at an age of 5900000 us"):
        settle(desk, account, change_of(account, "expired", **EXPIRED))
    for rate in (1.0, 1.1):
        desk, account = aged(5)
        desk.process.rate = rate
        desk.clock.advance(0.95)
        if rate > 1:
            settle(desk, account, change_of(account, "expired", **EXPIRED))
            continue
        with pytest.raises(Broken, match="S7"):
            settle(desk, account, change_of(account, "expired", **EXPIRED))


def test_a_step_excuses_an_expiry_only_after_the_claim() -> None:
    """S7: whoever hears the store's time after the step has no excuse."""
    desk, account = aged(5.9)
    desk.step(-1)
    settle(desk, account, change_of(account, "expired", **EXPIRED))
    desk = Desk()
    account = desk.insert(max_age_us=MAX_AGE_US)
    desk.step(1)
    desk.claim(account)
    with pytest.raises(Broken, match="S7"):
        settle(desk, account, change_of(account, "expired", **EXPIRED))


def test_a_failure_that_ends_a_young_job_is_seen() -> None:
    """S7: a retry is given up for the age only if the longest wait leads there. After a first failure that is one second."""
    desk, account = aged(5, "error")
    settle(desk, account, change_of(account, "failure", status="failed"))
    desk, account = aged(4.9, "error")
    with pytest.raises(Broken, match="S7: failure ends it as too old"):
        settle(desk, account, change_of(account, "failure", status="failed"))


def test_a_retry_that_will_be_too_old_is_seen() -> None:
    """S7: no wait is planned beyond the maximum age."""
    desk, account = aged(5.4, "error")
    settle(desk, account, change_of(account, "failure", delay_us=500_000))
    desk, account = aged(5.5, "error")
    with pytest.raises(Broken, match="S7: failure sends it to wait until it will be too old"):
        settle(desk, account, change_of(account, "failure", delay_us=500_000))


def test_retries_beyond_the_limit_are_seen() -> None:
    """S7: after the last execution a failure is final."""
    desk, account = started()
    account.attempts = 4
    with pytest.raises(Broken, match="S7"):
        settle(desk, account, change_of(account, "failure", attempts=4))


def test_crashes_beyond_the_limit_are_seen() -> None:
    """S8: the last crash is final, whatever retries are left."""
    desk, account = started()
    account.crashes, account.lease_us = 2, 0
    with pytest.raises(Broken, match="S8"):
        settle(desk, account, change_of(account, "crash", guard=Lapsed(1), crashes=3, failures=0))


def test_stale_writes_that_are_accepted_are_seen() -> None:
    """S4: under another fence; S22: of a lease that has not ended; S4: a requeue of what has not failed."""
    for rule, guard in (("S4", Held(0)), ("S22", Lapsed(1)), ("S4", Dead(1))):
        desk, account = started()
        with pytest.raises(Broken) as seen:
            settle(desk, account, change_of(account, "failure", guard=guard))
        assert seen.value.rule == rule


def test_a_lawful_write_that_is_refused_is_seen() -> None:
    """S4, from the other side; and S24: a repeat of what was applied."""
    desk, account = started()
    with pytest.raises(Broken, match="S4"):
        settle(desk, account, change_of(account, "failure"), applied=False)
    desk, account = started()
    settle(desk, account, change_of(account, "failure"))
    with pytest.raises(Broken, match="S24"):
        settle(desk, account, change_of(account, "failure"), applied=False)


def test_a_needless_loss_of_a_lease_is_seen() -> None:
    """L8: the holder was well, the store answered, and the lease ran out."""
    desk, account = started()
    account.heard = True
    desk.clock.advance(LEASE_US / 1e6)
    with pytest.raises(Broken, match="L8"):
        settle(desk, account, change_of(account, "crash", guard=Lapsed(1), crashes=1, failures=0, delay_us=0))


def test_an_outcome_sent_under_two_ids_is_seen() -> None:
    """S24: a repeat says the same; S4: a holder that knows it has lost a job writes nothing of it."""
    desk, account = started()
    sends(desk.watch, desk.process, "settle", ([change_of(account, "failure")],))
    with pytest.raises(Broken, match="S24"):
        sends(desk.watch, desk.process, "settle", ([change_of(account, "failure", settle_id="t")],))
    desk, account = started()
    desk.process.lost[account.number, 1] = 0.0
    with pytest.raises(Broken, match="S4"):
        sends(desk.watch, desk.process, "settle", ([change_of(account, "failure")],))


def test_a_job_that_is_stored_anew_is_another_one() -> None:
    """A late repeat of its insert, after it was done and pruned: what was sent for the first one says nothing of the second."""
    desk, account = started()
    sends(desk.watch, desk.process, "settle", ([change_of(account, "failure")],))
    desk.process.lost[account.number, 1] = 0.0
    del desk.rows[account.new.id]
    desk.watch.forget(account)
    again = desk.insert(id=account.new.id)
    desk.claim(again)
    sends(desk.watch, desk.process, "settle", ([change_of(again, "failure", settle_id="t")],))


def test_two_jobs_of_one_key_are_seen() -> None:
    """S10; and S24: a repeated insert that is answered otherwise."""
    desk = Desk()
    desk.insert(unique_key="u")
    with pytest.raises(Broken, match="S10"):
        desk.insert(unique_key="u")
    desk = Desk()
    account = desk.insert()
    with pytest.raises(Broken, match="S24"):
        saw_insert(desk.watch, [account.new], answer=[Inserted(id="another", created=False, at_us=0)])


def test_a_cancel_that_is_answered_wrong_is_seen() -> None:
    """S20."""
    desk = Desk()
    account = desk.insert()
    with pytest.raises(Broken, match="S20"):
        saw_cancel(desk.watch, [account.new.id], answer=["requested"])


def test_a_tick_that_fires_twice_is_seen() -> None:
    """S18: a tick counts once, and only where the schedule stands."""
    desk = Desk()
    pattern = NewJob(id="t", queue="one", task="work", payload="{}", policy="{}", max_retries=3)
    desk.watch.schedules["s"] = Schedule(name="s", job=pattern, interval_us=10, anchor_us=10, next_tick_us=20)
    tick = Tick(name="s", expected_us=20, next_tick_us=30, job=replace(pattern, id="t1", tick_us=20, schedule="s"))
    saw_fire(desk.watch, [tick], answer=[True])
    with pytest.raises(Broken, match="S18"):
        saw_fire(desk.watch, [tick], answer=[True])


@pytest.mark.parametrize(("now_us", "told_us", "is_fine"), [(20, 0, True), (19, 19, False), (19, 20, True)])
def test_a_tick_before_its_time_is_seen(now_us: int, told_us: int, is_fine: bool) -> None:
    """S18: by the store's clock, or by what it showed to the process that fires before it was set back; an older step is no excuse."""
    desk = Desk()
    desk.watch.stepped_s = 0.0
    base_us = desk.clock.now_us() - now_us
    pattern = NewJob(id="t", queue="one", task="work", payload="{}", policy="{}", max_retries=3)
    tick_us = base_us + 20
    desk.watch.schedules["s"] = Schedule(name="s", job=pattern, interval_us=10, anchor_us=base_us, next_tick_us=tick_us)
    tick = Tick(name="s", expected_us=tick_us, next_tick_us=tick_us + 10, job=replace(pattern, id="t1", tick_us=tick_us, schedule="s"))
    hears(desk.watch, desk.process, "now_us", (), base_us + told_us)
    if is_fine:
        saw_fire(desk.watch, [tick], answer=[True], process=desk.process)
        return
    with pytest.raises(Broken, match="S18: a tick of s fires before its time"):
        saw_fire(desk.watch, [tick], answer=[True], process=desk.process)


def test_a_prune_of_a_live_job_is_seen() -> None:
    """S9: only what has come to rest may go, and as many as told."""
    desk = Desk()
    desk.rows.pop(desk.insert().new.id)
    with pytest.raises(Broken, match="S9"):
        saw_prune(desk.watch, "done", 0, 10, answer=1)


def test_a_done_job_without_its_result_is_seen() -> None:
    """S19: in the same read."""
    desk = Desk()
    account = desk.insert()
    account.result_json = "1"
    with pytest.raises(Broken, match="S19"):
        saw_get(desk.watch, [account.new.id], answer=[replace(desk.rows[account.new.id], status="done")])
