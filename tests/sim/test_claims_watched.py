"""The rules for claims, renewals and starts can fail."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mulligan.core.change import Grip
from mulligan.core.contract import Claimed, Renewal
from mulligan.core.limits import TOKEN, Bucket, Slots
from mulligan.sim.account import Ending
from mulligan.sim.claims import saw_claim, saw_renew
from mulligan.sim.filing import saw_overdue
from mulligan.sim.process import Process
from mulligan.sim.watch import Broken
from mulligan.sim.wire import hears, sends
from tests.sim.desk import LEASE_US, Desk


def test_two_holders_are_seen() -> None:
    """S1: a job that is held is claimed once more."""
    desk = Desk()
    account = desk.insert()
    desk.claim(account)
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
    lost.process.lost[account.new.id, 1] = lost.watch.time_s()
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
