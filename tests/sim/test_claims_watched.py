"""The rules for claims, renewals and starts can fail."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mulligan.core.change import Grip
from mulligan.core.contract import Claimed, Renewal
from mulligan.core.job import Status
from mulligan.core.limits import TOKEN, Bucket, Slots
from mulligan.sim.account import Account, Ending
from mulligan.sim.claims import saw_claim, saw_renew
from mulligan.sim.filing import saw_overdue
from mulligan.sim.process import Process
from mulligan.sim.watch import Broken
from mulligan.sim.wire import hears, sends
from tests.sim.desk import LEASE_US, Desk


@pytest.mark.parametrize("stepped_s", [0.0, 1.0, -1.0])
def test_two_holders_are_seen(stepped_s: float) -> None:
    """S1: a job that is held is claimed once more; S23: after a step of the clock, too."""
    desk = Desk()
    account = desk.insert()
    desk.claim(account)
    if stepped_s:
        desk.step(stepped_s)
    with pytest.raises(Broken, match="S1"):
        desk.claim(account, process=desk.other)


def test_an_early_claim_is_seen() -> None:
    """S11: not before its time."""
    desk = Desk()
    account = desk.insert(delay_us=1)
    with pytest.raises(Broken, match="S11"):
        desk.claim(account)


def test_a_claim_from_a_paused_queue_is_seen() -> None:
    """S11: not while the queue is paused."""
    desk = Desk()
    account = desk.insert()
    desk.watch.paused.add("one")
    with pytest.raises(Broken, match="S11"):
        desk.claim(account)


def test_a_claim_of_a_level_nobody_asked_for_is_seen() -> None:
    """S11: what is claimed was asked for."""
    desk = Desk()
    account = desk.insert(priority=2)
    with pytest.raises(Broken, match="S11"):
        desk.claim(account)


def test_a_claim_of_a_cancelled_job_is_seen() -> None:
    """S20."""
    desk = Desk()
    account = desk.insert()
    account.cancel_requested = True
    with pytest.raises(Broken, match="S20"):
        desk.claim(account)


def test_more_jobs_than_slots_are_seen() -> None:
    """S14: leases that have not ended are counted; ended ones are not."""
    desk = Desk()
    limits = (Slots(most=1),)
    desk.claim(desk.insert(), limits=limits)
    desk.clock.advance(LEASE_US / 1e6)
    desk.claim(desk.insert(), limits=limits)
    with pytest.raises(Broken, match="S14"):
        desk.claim(desk.insert(), limits=limits)


def test_more_starts_than_tokens_are_seen() -> None:
    """S14: what flows in meanwhile may be used, and not more."""
    desk = Desk()
    limits = (Bucket(key="rate", rate_u=TOKEN, burst_u=TOKEN),)
    desk.claim(desk.insert(), limits=limits)
    desk.clock.advance(1)
    desk.claim(desk.insert(), limits=limits)
    desk.clock.advance(0.9)
    with pytest.raises(Broken, match="S14"):
        desk.claim(desk.insert(), limits=limits)


def test_a_job_that_jumps_the_line_is_seen() -> None:
    """S15: of one line, what is due longest goes first."""
    desk = Desk()
    desk.insert()
    desk.clock.advance(1)
    second = desk.insert()
    with pytest.raises(Broken, match="S15"):
        desk.claim(second)


def test_a_repeated_claim_that_takes_more_is_seen() -> None:
    """S24: a claim id answers what is still held under it."""
    desk = Desk()
    claim_id = desk.claim(desk.insert())
    more = desk.insert()
    answer = Claimed(jobs=[desk.rows[more.new.id]], now_us=0, next_due_us=None)
    with pytest.raises(Broken, match="S24"):
        saw_claim(desk.watch, claim_id, "w", [], 9, LEASE_US, answer=answer, process=desk.process)


@pytest.mark.parametrize(("fence", "held"), [(1, False), (0, True), (2, True)])
def test_a_renewal_by_the_wrong_holder_is_seen(fence: int, held: bool) -> None:
    """S4: the holder's renewal is refused, or that of another fence accepted."""
    desk = Desk()
    account = desk.insert()
    desk.claim(account)
    answer = [Renewal(job_id=account.new.id, fence=fence, held=held)]
    with pytest.raises(Broken, match="S4"):
        saw_renew(desk.watch, [Grip(account.new.id, fence)], LEASE_US, answer=answer, process=desk.process)


def test_a_renewal_that_writes_nothing_is_seen() -> None:
    """S12: the lease must end where the renewal asked for."""
    desk = Desk()
    account = desk.insert()
    desk.claim(account)
    desk.clock.advance(1)
    answer = [Renewal(job_id=account.new.id, fence=1, held=True)]
    with pytest.raises(Broken, match="S12"):
        saw_renew(desk.watch, [Grip(account.new.id, 1)], LEASE_US, answer=answer, process=desk.process)


def test_a_renewal_that_hides_a_cancel_is_seen() -> None:
    """S20."""
    desk = Desk()
    account = desk.insert()
    desk.claim(account)
    account.cancel_requested = True
    answer = [Renewal(job_id=account.new.id, fence=1, held=True)]
    with pytest.raises(Broken, match="S20"):
        saw_renew(desk.watch, [Grip(account.new.id, 1)], LEASE_US, answer=answer, process=desk.process)


def test_overdue_jobs_that_are_not_told_are_seen() -> None:
    """L1: who looks for ended leases finds all of them; S22: and no other."""
    desk = Desk()
    account = desk.insert()
    desk.claim(account)
    with pytest.raises(Broken, match="S22"):
        saw_overdue(desk.watch, 10, answer=[desk.rows[account.new.id]], process=None)
    late = Desk()
    late.claim(late.insert())
    late.clock.advance(LEASE_US / 1e6)
    with pytest.raises(Broken, match="L1"):
        saw_overdue(late.watch, 10, answer=[], process=None)


def test_a_start_that_nobody_was_given_is_seen() -> None:
    """S2: under a fence that was never given, or by another process."""
    desk = Desk()
    account = desk.insert()
    with pytest.raises(Broken, match="S2"):
        desk.watch.starts(replace(desk.rows[account.new.id], fence=1), desk.process)
    other = Desk()
    account = other.insert()
    other.claim(account)
    with pytest.raises(Broken, match="S2"):
        other.watch.starts(other.rows[account.new.id], other.other)


def test_a_start_without_a_lease_is_seen() -> None:
    """S2: the lease is in hand until its last moment, and not at its end, even if nobody has taken the job over."""
    desk = Desk()
    in_time, late = desk.insert(), desk.insert()
    desk.claim(in_time, late)
    desk.clock.advance(LEASE_US / 1e6 - 0.000_001)
    desk.watch.starts(desk.rows[in_time.new.id], desk.process)
    desk.clock.advance(0.000_001)
    with pytest.raises(Broken, match="S2: it starts 0.000000 s after its lease"):
        desk.watch.starts(desk.rows[late.new.id], desk.process)


@pytest.mark.parametrize("status", ["pending", "processing", "failed"])
def test_a_start_of_what_another_has_is_seen(status: Status) -> None:
    """S2: it was taken over, and waits, is held under the next fence, or is over."""
    desk = Desk()
    account = desk.insert()
    desk.claim(account)
    stale = desk.rows[account.new.id]
    account.status = status
    account.fence += status == "processing"
    with pytest.raises(Broken, match=f"S2: it starts under fence 1, and it is {status}"):
        desk.watch.starts(stale, desk.process)


def test_a_lease_counts_from_its_last_renewal() -> None:
    """S2: a start after the first end of a lease that was renewed is in order."""
    desk = Desk()
    account = desk.insert()
    desk.claim(account)
    desk.clock.advance(LEASE_US / 1e6 - 1)
    _renew(desk, account)
    desk.clock.advance(2)
    desk.watch.starts(desk.rows[account.new.id], desk.process)
    assert desk.watch.broken is None


def test_a_step_of_the_clock_excuses_those_whom_it_has_met() -> None:
    """S2, S6, S20: a lease that a step has ended was believed in; one that was claimed or renewed after the step has no excuse."""
    for status in ("processing", "done", "cancelled"):
        met = Desk()
        account = met.insert()
        met.claim(account)
        met.step(LEASE_US / 1e6)
        account.status = status
        met.watch.starts(met.rows[account.new.id], met.process)
        assert met.watch.broken is None
    for rule, status in (("S2", "processing"), ("S6", "done"), ("S20", "cancelled")):
        for renewed in (False, True):
            desk = Desk()
            account = desk.insert()
            if renewed:
                desk.claim(account)
                desk.step(1)
                _renew(desk, account)
            else:
                desk.step(1)
                desk.claim(account)
            desk.clock.advance(LEASE_US / 1e6)
            account.status = status
            with pytest.raises(Broken, match=rule):
                desk.watch.starts(desk.rows[account.new.id], desk.process)


def test_a_start_beyond_the_maximum_age_is_seen() -> None:
    """S7: too old when it was claimed; a step after the claim may have made it look younger."""
    desk = Desk()
    account = desk.insert(max_age_us=1_000_000)
    desk.clock.advance(1)
    desk.claim(account)
    with pytest.raises(Broken, match="S7: it starts, and it was too old"):
        desk.watch.starts(desk.rows[account.new.id], desk.process)
    for claimed_s, stepped_s in ((0.5, 0.0), (1.0, -1.0)):
        desk = Desk()
        account = desk.insert(max_age_us=1_000_000)
        desk.clock.advance(claimed_s)
        desk.claim(account)
        if stepped_s:
            desk.step(stepped_s)
        desk.watch.starts(desk.rows[account.new.id], desk.process)
        assert desk.watch.broken is None


def _renew(desk: Desk, account: Account) -> None:
    row = desk.rows[account.new.id]
    desk.rows[row.id] = replace(row, lease_expires_at_us=desk.clock.now_us() + LEASE_US)
    answer = [Renewal(job_id=row.id, fence=1, held=True)]
    saw_renew(desk.watch, [Grip(row.id, 1)], LEASE_US, answer=answer, process=desk.process)


def test_two_starts_of_one_claim_are_seen() -> None:
    """S6: one start for each claim."""
    desk = Desk()
    account = desk.insert()
    desk.claim(account)
    desk.watch.starts(desk.rows[account.new.id], desk.process)
    with pytest.raises(Broken, match="S6"):
        desk.watch.starts(desk.rows[account.new.id], desk.process)


def test_a_start_after_success_is_seen() -> None:
    """S6: no start after a success was stored in this generation."""
    desk = Desk()
    account = desk.insert()
    desk.claim(account)
    account.status = "done"
    with pytest.raises(Broken, match="S6"):
        desk.watch.starts(desk.rows[account.new.id], desk.process)


def test_a_start_after_a_confirmed_cancel_is_seen() -> None:
    """S20."""
    desk = Desk()
    account = desk.insert()
    desk.claim(account)
    account.status = "cancelled"
    with pytest.raises(Broken, match="S20"):
        desk.watch.starts(desk.rows[account.new.id], desk.process)


def test_a_handler_that_runs_on_is_seen() -> None:
    """L4: past its time-out; S2: after its holder has heard that it is another's."""
    desk = Desk()
    account = desk.insert(timeout_us=1_000_000)
    desk.claim(account)
    desk.watch.starts(desk.rows[account.new.id], desk.process)
    desk.clock.advance(2)
    with pytest.raises(Broken, match="L4"):
        desk.watch.ends(account, 1, Ending("ok"), desk.process, obeys=True)
    lost = Desk()
    account = lost.insert()
    lost.claim(account)
    lost.watch.starts(lost.rows[account.new.id], lost.process)
    lost.process.lost[account.number, 1] = lost.watch.time_s()
    lost.clock.advance(2)
    with pytest.raises(Broken, match="S2"):
        lost.watch.ends(account, 1, Ending("ok"), lost.process, obeys=True)


def test_a_second_claim_before_the_answer_to_the_first_is_seen() -> None:
    """S24: a claim whose answer was lost is repeated under its own id."""
    desk = Desk()
    process = Process(7)
    sends(desk.watch, process, "claim", ("a",))
    sends(desk.watch, process, "claim", ("a",))
    hears(desk.watch, process, "claim", ("a",), Claimed(jobs=[], now_us=0, next_due_us=None))
    sends(desk.watch, process, "claim", ("b",))
    with pytest.raises(Broken, match="S24"):
        sends(desk.watch, process, "claim", ("c",))
