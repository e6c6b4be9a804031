"""What must hold for claims and renewals, judged by the accounts."""

from __future__ import annotations

from collections.abc import Sequence

from mulligan.core.change import Grip
from mulligan.core.clock import SECOND_US
from mulligan.core.contract import Ask, Claimed, Renewal, WorkerInfo
from mulligan.core.job import Job
from mulligan.core.limits import TOKEN, Bucket, Slots
from mulligan.sim.account import Account, Term
from mulligan.sim.plan import FAIR
from mulligan.sim.process import Process
from mulligan.sim.watch import Watch


def saw_claim(
    watch: Watch, claim_id: str, owner: str, asks: Sequence[Ask], total: int, lease_us: int, *, answer: Claimed, process: Process | None
) -> None:
    """A claim was carried out."""
    now_us = watch.now_us()
    taken = watch.claims.get(claim_id)
    numbers = [account.number if (account := watch.accounts.get(job.id)) else -1 for job in answer.jobs]
    watch.saw("claim", f"by {process.number if process else '-'} total {total}: {numbers}{' again' if taken else ''}")
    watch.check("S1", "a job twice in one answer" if len(set(numbers)) != len(numbers) else "")
    watch.check("S14", f"{len(answer.jobs)} jobs for a claim of {total}" if len(answer.jobs) > total else "")
    if taken is not None:
        _repeated(watch, claim_id, taken, answer)
        return
    got: list[tuple[Account, int]] = []
    for job in answer.jobs:
        account = watch.accounts.get(job.id)
        if account is None:
            watch.fail("S9", f"a job was claimed that is not stored: {job.task}")
            return
        ask = _ask_of(account, asks)
        _may_be_claimed(watch, account, job, ask, now_us)
        account.due_us, account.status, account.run_at_us = account.run_at_us or 0, "processing", None
        account.fence += 1
        account.attempts += 1
        account.claim_id, account.owner, account.holder = claim_id, owner, process
        account.lease_us = now_us + lease_us
        account.terms[account.fence] = Term(claimed_s=watch.time_s(), claimed_us=now_us, written_s=watch.time_s())
        account.limits = () if ask is None else ask.limits
        account.slotted = any(isinstance(one, Slots) and one.applies(account.lane, account.new.group) for one in account.limits)
        account.told_lost = account.heard = False
        watch.note(f"claimed fence {account.fence} attempt {account.attempts} by {process.number if process else '-'}", account)
        got.append((account, account.fence))
        watch.check("S3", "" if job.fence == account.fence else f"claimed under fence {job.fence}, claim {account.fence}", account)
        watch.must_change(account)
    if got:
        watch.claims[claim_id] = got
        if got[0][0].new.queue == FAIR:
            waiting = {one.lane for one in watch.accounts.values() if one.new.queue == FAIR and one.status == "pending"}
            for account, _ in got:
                account.both_waited = len(waiting) > 1
    for account, _ in got:
        watch.check("S14", _over_slots(watch, account, now_us), account)
        watch.check("S15", _out_of_turn(watch, account, asks, now_us), account)
    _take_tokens(watch, [account for account, _ in got], now_us)


def _repeated(watch: Watch, claim_id: str, taken: Sequence[tuple[Account, int]], answer: Claimed) -> None:
    """A claim id that took jobs before returns what is still held under it, and nothing else."""
    held = {a.number for a, fence in taken if a.status == "processing" and a.fence == fence and a.claim_id == claim_id}
    told = {watch.accounts[job.id].number for job in answer.jobs if job.id in watch.accounts}
    watch.check("S24", "" if held == told else f"a repeated claim answers {sorted(told)}, and {sorted(held)} are held under it")


def _ask_of(account: Account, asks: Sequence[Ask]) -> Ask | None:
    for ask in asks:
        if ask.queue == account.new.queue and ask.lane in (None, account.lane) and ask.priority == account.new.priority:
            return ask
    return None


def _may_be_claimed(watch: Watch, account: Account, job: Job, ask: Ask | None, now_us: int) -> None:
    """Pending, due, not paused, not cancelled, and asked for."""
    problem = ""
    if account.status == "processing":
        ended = "whose lease had ended, but whom nobody had taken it from" if account.lease_us <= now_us else "under a lease"
        problem = f"it was claimed while process {account.holder.number if account.holder else '-'} has it, {ended}"
    watch.check("S1", problem, account)
    watch.check("S5", f"a {account.status} job was claimed" if not account.is_live else "", account)
    early = account.run_at_us is None or account.run_at_us > now_us
    watch.check("S11", f"claimed at {now_us}, and it is due at {account.run_at_us}" if early else "", account)
    watch.check("S11", f"claimed from {job.queue}, which is paused" if account.new.queue in watch.paused else "", account)
    watch.check("S20", "claimed though its cancel was requested" if account.cancel_requested else "", account)
    watch.check("S11", "" if ask is not None else "claimed, and nobody asked for such a job", account)


def _over_slots(watch: Watch, account: Account, now_us: int) -> str:
    """Jobs under a lease that has not ended are no more than each limit allows that this one was claimed under."""
    key = account.new.concurrency_key
    for limit in account.limits:
        if not isinstance(limit, Slots) or not limit.applies(account.lane, account.new.group):
            continue
        others = [
            one
            for one in watch.accounts.values()
            if one.new.queue == account.new.queue
            and one.holds(now_us)
            and limit.lane in (None, one.lane)
            and (one.new.concurrency_key == key if limit.by_key else one.slotted)
        ]
        if len(others) > limit.most:
            of = f"of the {limit.lane or 'whole'} queue" + (f" with key {key}" if limit.by_key else "")
            return f"{len(others)} jobs {of} are under a lease, and {limit.most} may be"
    return ""


def _out_of_turn(watch: Watch, account: Account, asks: Sequence[Ask], now_us: int) -> str:
    """Of one line (queue, lane, level, group) the job that is due longest goes first; equal ones in the order of their ids."""
    ask = _ask_of(account, asks)
    if ask is None or ask.order != "run_at":
        return ""
    new, mine = account.new, (account.due_us, account.new.id)
    for other in watch.accounts.values():
        if (
            other.status == "pending"
            and other.run_at_us is not None
            and other.run_at_us <= now_us
            and (other.run_at_us, other.new.id) < mine
        ):
            theirs = other.new
            line = (theirs.queue, other.lane, theirs.priority, theirs.group)
            if line == (new.queue, account.lane, new.priority, new.group):
                return f"claimed before job #{other.number}, which stands before it"
    return ""


def _take_tokens(watch: Watch, accounts: Sequence[Account], now_us: int) -> None:
    """Each start takes a token from its buckets, and brings something into those of the other lane; no bucket goes below nothing.

    In which order the starts of one claim were counted is not told, so they are added up.
    """
    buckets: dict[str, Bucket] = {}
    flows: dict[str, int] = {}
    for account in accounts:
        for limit in account.limits:
            if isinstance(limit, Bucket) and (key := limit.key_for(account.new.group)) is not None:
                buckets[key] = limit
                flow = -TOKEN if limit.lane in (None, account.lane) else limit.ratio_u
                flows[key] = flows.get(key, 0) + flow
    for key, flow in flows.items():
        bucket = buckets[key]
        level, at_us = watch.levels.get(key, (bucket.burst_u, now_us))
        level = min(bucket.burst_u, level + max(0, now_us - at_us) * bucket.rate_u // SECOND_US) + flow
        watch.check("S14", f"starts beyond {key}: {-level / TOKEN:.3f} tokens too many" if level < 0 else "", accounts[0])
        watch.levels[key] = (min(bucket.burst_u, level), now_us)


def saw_renew(
    watch: Watch,
    grips: Sequence[Grip],
    lease_us: int,
    worker: WorkerInfo | None = None,
    *,
    answer: Sequence[Renewal],
    process: Process | None,
) -> None:
    """A renewal was carried out."""
    del worker
    now_us = watch.now_us()
    told = []
    for grip, one in zip(grips, answer, strict=True):
        account = watch.accounts.get(grip.job_id)
        if account is None:
            watch.check("S4", "a job that is not stored was renewed" if one.held else "")
            continue
        held = account.status == "processing" and account.fence == grip.fence
        told.append((account.number, one.held))
        if one.held and not held:
            watch.check(
                "S4", f"a renewal under fence {grip.fence} was accepted; it is {account.status} under fence {account.fence}", account
            )
        lapsed = account.lease_us <= now_us
        if held and not one.held and not (lapsed and account.slotted):
            watch.check("S4", f"the renewal of its holder was refused under fence {grip.fence}", account)
        watch.checks["S4"] += 1
        if one.held:
            account.lease_us, account.term.written_s = now_us + lease_us, watch.time_s()
            watch.check("S20", "" if one.cancel_requested == account.cancel_requested else "a renewal hides that a cancel waits", account)
            if lapsed:
                watch.check("S14", _over_slots(watch, account, now_us), account)
            watch.must_change(account)
        elif account.fence == grip.fence:
            account.told_lost = True
    watch.saw("renew", f"by {process.number if process else '-'}: {told}")
