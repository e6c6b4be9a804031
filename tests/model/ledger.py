"""An account of what was done to a store, kept apart from every store, and the invariants that must hold by it.

The numbers are those of the safety invariants: S3 fence rises, S4 fenced writes, S5 terminal is final, S7 attempts, S9 conservation,
S10 one per key, S11 not early and not paused, S12 well-formed, S18 ticks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from mulligan.core.change import Change, Dead, Guard, Lapsed, Verdict
from mulligan.core.contract import Claimed, Inserted, QueueState
from mulligan.core.job import HISTORY_MAX, LIVE, Job, NewJob, Status
from mulligan.core.schedule import Tick

Rows = dict[str, Job]


class Ledger:
    """Counts claims, refunds, inserts, removals and ticks from the answers the store gave, and compares them with its rows."""

    def __init__(self) -> None:
        self.rows: Rows = {}  # as they were after the step before
        self._fences: Counter[str] = Counter()  # claims of a job, ever
        self._attempts: Counter[str] = Counter()  # claims less refunds, in this generation
        self._stored: set[str] = set()  # inserted and not pruned
        self._applied: set[tuple[str, str]] = set()  # (job, settle_id)
        self._fired: set[tuple[str, int]] = set()  # (schedule, tick), since the schedule last began anew
        self._resets: Counter[str] = Counter()
        self._requeued: set[str] = set()  # in this step
        self._pruned: tuple[Status, int, int] | None = None  # in this step: status, latest finish time, how many

    # -- What was answered --------------------------------------------------------------------------------------------

    def inserted(self, jobs: Sequence[NewJob], answers: Sequence[Inserted]) -> None:
        """Notes new jobs; whoever was not created stands for a live job with the same key."""
        for job, answer in zip(jobs, answers, strict=True):
            assert answer.created == (answer.id == job.id), "created means: the job asked for"
            if answer.created:
                self._stored.add(job.id)
            else:
                assert job.id not in self._stored, "a known id must be answered as created"

    def claimed(self, answer: Claimed, queues: Sequence[QueueState], *, repeated: bool) -> None:
        """Notes a claim: each job was pending, due and not paused (S11), and gets the next fence (S3)."""
        paused = {state.queue for state in queues if state.paused}
        assert len({job.id for job in answer.jobs}) == len(answer.jobs), "a job twice in one claim"
        for job in answer.jobs:
            before = self.rows[job.id]
            if repeated:
                assert (before.status, before.fence, before.claim_id) == ("processing", job.fence, job.claim_id), "not held any more"
                continue
            assert before.status == "pending", f"S1: {before.status} job claimed"
            assert before.run_at_us is not None, "S12: pending job without a time"
            assert before.run_at_us <= answer.now_us, "S11: claimed before its time"
            assert job.queue not in paused, "S11: claimed from a paused queue"
            self._fences[job.id] += 1
            self._attempts[job.id] += 1
            assert job.fence == self._fences[job.id], "S3: fence"
            assert job.due_us == before.run_at_us, "a claim forgot when the job fell due"

    def settled(self, changes: Sequence[Change], verdicts: Sequence[Verdict]) -> None:
        """Notes settlements, and that each was applied exactly if its guard held (S4)."""
        seen: set[str] = set()
        for change, verdict in zip(changes, verdicts, strict=True):
            key = (change.job_id, change.settle_id)
            row = self.rows.get(change.job_id)
            if change.job_id not in seen:
                # The second change of a job in one batch sees what the first one wrote, which is not known here.
                repeated = row is not None and row.settle_id == change.settle_id
                held = row is not None and self._guard_holds(row, change.guard, verdict.at_us)
                assert verdict.applied in ({True} if repeated or held else {False}), f"S4: {change.guard} on {row}: {verdict}"
            seen.add(change.job_id)
            if not verdict.applied or key in self._applied:
                continue
            self._applied.add(key)
            if change.cause == "requeue":
                self._attempts[change.job_id] = 0
                self._requeued.add(change.job_id)
            elif change.cause in ("snooze", "release"):
                self._attempts[change.job_id] -= 1

    def _guard_holds(self, row: Job, guard: Guard, now_us: int) -> bool:
        if isinstance(guard, Dead):
            return row.status == "failed" and row.generation == guard.generation and not self._key_taken(row)
        if row.status != "processing" or row.fence != guard.fence:
            return False
        return not isinstance(guard, Lapsed) or (row.lease_expires_at_us is not None and row.lease_expires_at_us <= now_us)

    def _key_taken(self, row: Job) -> bool:
        return row.unique_key is not None and any(
            (other.queue, other.unique_key) == (row.queue, row.unique_key) and other.status in LIVE for other in self.rows.values()
        )

    def fired(self, ticks: Sequence[Tick], answers: Sequence[bool]) -> None:
        """Notes ticks: each fires at most once (S18), and its job is stored unless its key has a live owner."""
        owned = {(row.queue, row.unique_key) for row in self.rows.values() if row.status in LIVE and row.unique_key is not None}
        for tick, applied in zip(ticks, answers, strict=True):
            if not applied:
                continue
            assert (tick.name, tick.expected_us) not in self._fired, "S18: a tick fired twice"
            self._fired.add((tick.name, tick.expected_us))
            if tick.job is not None and (tick.job.queue, tick.job.unique_key) not in owned:
                self._stored.add(tick.job.id)
                if tick.job.unique_key is not None:
                    owned.add((tick.job.queue, tick.job.unique_key))

    def schedule_reset(self, name: str) -> None:
        """Notes that a schedule begins anew, so that its ticks may come again."""
        self._resets[name] += 1
        self._fired = {(known, tick_us) for known, tick_us in self._fired if known != name}

    def incarnation(self, name: str) -> str:
        """A mark for the jobs of a schedule since it last began anew."""
        return f"{name}-{self._resets[name]}"

    def pruned(self, status: Status, until_us: int, count: int) -> None:
        """Notes a removal."""
        self._pruned = (status, until_us, count)

    # -- What must hold after every step ------------------------------------------------------------------------------

    def check(self, rows: Rows) -> None:
        """Compares the rows with the account, and with the rows of the step before."""
        self._check_removed({job_id: row for job_id, row in self.rows.items() if job_id not in rows})
        for job_id, row in rows.items():
            check_well_formed(row)
            assert row.fence == self._fences[job_id], f"S3: fence {row.fence} after {self._fences[job_id]} claims"
            assert row.attempts == self._attempts[job_id], f"S7: {row.attempts} attempts, by the account {self._attempts[job_id]}"
            before = self.rows.get(job_id)
            if before is not None:
                self._check_transition(before, row)
        assert set(rows) == self._stored, "S9: enqueued = stored + pruned"
        self._check_keys(rows)
        self.rows, self._requeued, self._pruned = rows, set(), None

    def _check_removed(self, removed: Rows) -> None:
        if self._pruned is None:
            assert not removed, f"S9: {len(removed)} jobs vanished"
            return
        status, until_us, count = self._pruned
        assert len(removed) == count, "S9: prune told another number than it removed"
        for job_id, row in removed.items():
            assert row.status == status, f"prune of {status} removed a {row.status} job"
            assert row.finished_at_us is not None
            assert row.finished_at_us <= until_us, "prune removed a job too young"
            self._stored.discard(job_id)
            self._applied = {key for key in self._applied if key[0] != job_id}
            del self._fences[job_id], self._attempts[job_id]

    def _check_transition(self, before: Job, after: Job) -> None:
        assert after.status == "pending" or after.due_us == before.due_us, f"a {after.status} job got another due time"
        if before.status in LIVE:
            assert after.generation == before.generation or before.id in self._requeued
            return
        if before.status == "failed" and before.id in self._requeued:
            assert (after.status, after.generation) == ("pending", before.generation + 1), "S5: requeue raises the generation"
            return
        assert replace(after, read_at_us=0) == replace(before, read_at_us=0), f"S5: a {before.status} job changed"

    def _check_keys(self, rows: Rows) -> None:
        live = Counter((row.queue, row.unique_key) for row in rows.values() if row.status in LIVE and row.unique_key is not None)
        assert not live or max(live.values()) == 1, "S10: two live jobs of one unique key"
        ticks = Counter((row.trace, row.tick_us) for row in rows.values() if row.schedule is not None)
        assert not ticks or max(ticks.values()) == 1, "S18: two jobs of one tick"


def check_well_formed(row: Job) -> None:
    """A row has exactly the fields its status calls for (S12)."""
    lease = (row.lease_owner is not None, row.lease_expires_at_us is not None, row.claim_id is not None)
    assert lease == (row.status == "processing",) * 3, f"S12: {row.status} with lease fields {lease}"
    assert (row.run_at_us is not None) == (row.status == "pending"), f"S12: {row.status} with run_at {row.run_at_us}"
    assert row.status != "pending" or row.due_us == row.run_at_us, f"S12: a pending job with run_at {row.run_at_us} is due at {row.due_us}"
    assert (row.finished_at_us is not None) == (row.status not in LIVE), f"S12: {row.status} with finished_at {row.finished_at_us}"
    assert not (row.status == "pending" and row.cancel_requested), "S20: a job waits to be started though its cancel was requested"
    assert row.attempts >= 0
    assert row.generation >= 1
    assert len(row.history) <= HISTORY_MAX
