"""The ledger put in order: what became of every job under each of its fences, and what was done to the processes.

Reads line by line and keeps a small record per claim. Knows nothing of the queue beyond the format of the ledger.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mulligan.torture.ledger import Line, read_lines
from mulligan.torture.spans import Spans

FOREVER = 1 << 62


class Settle:
    """One outcome that somebody tried to write, by its id; a repeat of the call is the same one."""

    __slots__ = ("applied_at", "cause", "due", "gen", "guard", "id", "pid", "refused_at", "status", "store", "tried_at")

    def __init__(self, line: Line) -> None:
        self.id = line.id
        self.pid = line.pid
        self.tried_at = line.at  # the first try
        self.cause = line.cause
        self.guard = line.guard
        self.gen = line.gen
        self.status = line.status
        self.applied_at = 0  # the first time the store said so; 0: it never did
        self.refused_at = 0  # the last time it was refused
        self.store = 0
        self.due = 0


class Hold:
    """One fence of one job: from the claim to whatever ended it."""

    __slots__ = (
        "claim_id", "claimed_at", "claimed_store", "claimer", "due", "end_how", "ended_at", "gen", "is_alone", "other_claims", "renewed_at",
        "renewed_sent", "renewers", "runner", "sent", "settles", "started_at", "starts", "until",
    )  # fmt: skip

    def __init__(self) -> None:
        self.claimer = 0
        self.claim_id = ""
        self.other_claims = 0  # claims of other ids that were given the same fence
        self.sent = 0
        self.claimed_at = 0  # 0: nobody lived to note it
        self.claimed_store = 0
        self.due = 0  # when this execution fell due, on the store's clock: by then nobody held it any more
        self.until = 0
        self.gen = 0
        self.is_alone = False  # its claimer has handed it to the supervisor, to be run alone
        self.runner = 0
        self.starts = 0
        self.started_at = 0
        self.ended_at = 0
        self.end_how = ""
        self.renewed_sent = 0  # of the last renewal that was granted
        self.renewed_at = 0
        self.renewers: set[int] = set()  # processes that have asked for a renewal and not heard the answer
        self.settles: list[Settle] = []

    def settle(self, line: Line) -> Settle:
        for settle in self.settles:
            if settle.id == line.id:
                return settle
        self.settles.append(Settle(line))
        return self.settles[-1]

    def applied(self) -> list[Settle]:
        return [settle for settle in self.settles if settle.applied_at]


class Life:
    """One job, from the first wish to store it on."""

    __slots__ = ("acknowledged_at", "cancels", "due", "effects", "holds", "is_unwanted", "requeues", "starts", "tried_at", "tries")

    def __init__(self) -> None:
        self.tries = 0
        self.tried_at = 0  # the first of them
        self.acknowledged_at = 0
        self.due = 0
        self.holds: dict[int, Hold] = {}
        self.starts: list[tuple[int, int, int, int]] = []  # time, fence, generation, pid
        self.effects: list[tuple[int, int, str, bool, bool]] = []  # order, fence, key, accepted by fence, and by key
        self.cancels: list[tuple[int, str]] = []
        self.is_unwanted = False  # somebody asked to cancel it, answered or not
        self.requeues = 0

    def hold(self, fence: int) -> Hold:
        if fence not in self.holds:
            self.holds[fence] = Hold()
        return self.holds[fence]


def _times() -> array[int]:
    return array("q")


class History:
    """All that a ledger tells."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {}
        self.lives: dict[str, Life] = defaultdict(Life)
        self._parents: dict[int, list[tuple[int, int]]] = defaultdict(list)  # by process: since when, and who; numbers are used again
        self.deaths: dict[int, list[list[int]]] = defaultdict(list)  # by process: the kill is on its way from, and done by
        self.ends: dict[int, int] = {}  # processes that ended, or were ended by their supervisor
        self.stopped_at = 0  # when all workers were told to end: 0, never
        self.pauses: dict[int, Spans] = defaultdict(Spans)
        self.outages: list[tuple[int, int, str]] = []  # from, until, and what kind of
        self.idle: dict[int, list[list[int]]] = defaultdict(list)  # by process: from when to when it had a free slot; until 0, to its end
        self.polls: dict[int, Spans] = defaultdict(Spans)  # by process: calls that brought it nothing in that time
        self.blocked: dict[int, Spans] = defaultdict(Spans)  # by process: times in which a handler held its loop
        self.claim_answers: dict[int, array[int]] = defaultdict(_times)  # by process: when the store has answered a claim
        self.answers: dict[int, array[int]] = defaultdict(_times)  # by process: a renewal, a settle, a look for claims
        self.work = _times()  # when any process was answered a claim, or a settle that was accepted
        self.keys: dict[str, set[str]] = defaultdict(set)
        self.faults: dict[str, int] = defaultdict(int)
        self.lines = self.stale = 0
        self.ahead_min, self.ahead_max = -FOREVER, FOREVER  # bounds of how far the machine's clock is ahead of the store's
        self.last_at = 0
        self._open: dict[tuple[str, tuple[int, ...]], int] = {}
        self._blocking: dict[tuple[int, str, int], int] = {}

    def death_after(self, pid: int, at: int) -> int:
        """When this process was killed, if it was there until then; else never. A kill is noted before it strikes."""
        return next((max(begin, at) for begin, end in self.deaths.get(pid, ()) if end >= at), FOREVER)

    def held_until(self, hold: Hold, lease_us: int) -> int:
        """When a lease had run out for certain. Who was killed before it heard of a renewal may have had it all the same."""
        unheard = [self.death_after(pid, hold.claimed_at) for pid in hold.renewers]
        return max(hold.renewed_at, hold.claimed_at, *(at for at in unheard if at < FOREVER)) + lease_us

    def dying(self, pid: int, at: int) -> Spans:
        """From the kill of this process to the moment at which nothing of it ran any more, if that was seen."""
        return Spans((begin, end) for begin, end in self.deaths.get(pid, ()) if at <= end < FOREVER)

    def holder(self, hold: Hold) -> int:
        """The process in whose hands it was last. What waits to be run alone is in those of its claimer's supervisor."""
        return hold.runner or (self.parent(hold.claimer, hold.claimed_at) if hold.is_alone else hold.claimer)

    def parent(self, pid: int, at: int) -> int:
        """The supervisor of the process that had this number then; 0 if nobody told."""
        known = self._parents.get(pid, ())
        return next((parent for since, parent in reversed(known) if since <= at), known[0][1] if known else 0)

    def parents(self, pid: int) -> set[int]:
        """All supervisors of processes of this number."""
        return {parent for _, parent in self._parents.get(pid, ())}

    def claimed_from(self, hold: Hold) -> int:
        """The earliest moment at which this claim can have been made: its answer may have come much later, and to a repeated call."""
        made_at = hold.claimed_store + self.ahead_min if self.ahead_min != -FOREVER else hold.sent
        return min(hold.claimed_at, made_at)

    def end_of(self, pid: int, at: int) -> int:
        """When this process was gone, or on its way, if that was after this time: killed, with its supervisor, or told to end."""
        ends = [self.death_after(one, at) for one in (pid, self.parent(pid, at))]
        ends += [end for end in (self.ends.get(pid, 0), self.stopped_at) if end >= at and end]
        return min(*ends, self.last_at)

    def take(self, lines: Iterable[Line]) -> History:
        """Reads all lines."""
        for line in lines:
            self.lines += 1
            self.last_at = max(self.last_at, line.at)
            reader = getattr(self, f"_on_{line.kind.lower()}", None)
            if reader is not None:
                reader(line)
        for (how, pids), begin in self._open.items():  # never ended
            self._span(how, pids, begin, self.last_at)
        for (pid, _, _), begin in self._blocking.items():
            self.blocked[pid].add(begin, self.last_at)
        for times in (self.work, *self.answers.values(), *self.claim_answers.values()):
            times[:] = array("q", sorted(times))  # lines are written a little later than what they tell
        return self

    # --- processes -------------------------------------------------------------------------------------------------------

    def _on_run(self, line: Line) -> None:
        self.settings = line.settings

    def _on_up(self, line: Line) -> None:
        self._parents[line.pid].append((line.at, line.parent))

    def _on_down(self, line: Line) -> None:
        self.ends[line.pid] = line.at

    def _on_ending(self, line: Line) -> None:
        for pid in line.pids:
            self.ends.setdefault(pid, line.at)

    def _on_stop(self, line: Line) -> None:
        self.stopped_at = line.at

    def _on_nemesis(self, line: Line) -> None:
        key = (line.how, line.pids)
        if line.how.startswith("kill"):
            self.faults[line.how] += line.step == "start"
            for pid in line.pids if line.how != "kill producer" else ():  # producers hold no jobs
                if line.step == "start":
                    self.deaths[pid].append([line.at, FOREVER])
                elif self.deaths[pid]:
                    self.deaths[pid][-1][1] = line.at
        elif line.step == "start":
            self.faults[line.how] += 1
            self._open[key] = line.at
        elif key in self._open:
            self._span(line.how, line.pids, self._open.pop(key), line.at)

    def _span(self, how: str, pids: tuple[int, ...], begin: int, end: int) -> None:
        if how.startswith("pause"):
            for pid in pids:
                self.pauses[pid].add(begin, end)
        else:
            self.outages.append((begin, end, how))

    # --- jobs ------------------------------------------------------------------------------------------------------------

    def _on_enq_try(self, line: Line) -> None:
        life = self.lives[line.job]
        life.tries += 1
        life.tried_at = life.tried_at or line.at

    def _on_enq_ok(self, line: Line) -> None:
        life = self.lives[line.job]
        life.acknowledged_at = life.acknowledged_at or line.at
        if life.tries == 1:  # a repeated call is answered with a later time
            life.due = line.due

    def _on_claim(self, line: Line) -> None:
        self._compare_clocks(line)
        self.claim_answers[line.pid].append(line.at)
        self.work.append(line.at)
        spans = self.idle.get(line.pid)
        if spans and not spans[-1][1] and line.sent >= spans[-1][0]:
            spans[-1][1] = line.sent
        hold = self.lives[line.job].hold(line.fence)
        if hold.claimed_at:
            hold.other_claims += hold.claim_id != line.id
            return
        hold.claimer, hold.claim_id, hold.sent = line.pid, line.id, line.sent
        hold.claimed_at, hold.claimed_store, hold.until, hold.gen, hold.due = line.at, line.store, line.until, line.gen, line.due

    def _on_found(self, line: Line) -> None:
        """A supervisor has looked for what a dead child had claimed; that it was claimed is known now, but not when."""
        self.answers[line.pid].append(line.at)
        self.lives[line.job].hold(line.fence).gen = line.gen

    def _on_alone(self, line: Line) -> None:
        self.lives[line.job].hold(line.fence).is_alone = True

    def _on_idle(self, line: Line) -> None:
        """A slot is free, and stays so until a claim brings a job: calls that bring none do not end this time."""
        self._on_empty(line)
        spans = self.idle[line.pid]
        if not spans or spans[-1][1]:
            spans.append([line.at, 0])

    def _on_empty(self, line: Line) -> None:
        self._compare_clocks(line)
        self.claim_answers[line.pid].append(line.at)
        self.work.append(line.at)
        spans = self.idle.get(line.pid)
        if spans and not spans[-1][1]:
            self.polls[line.pid].add(line.sent, line.at)

    def _compare_clocks(self, line: Line) -> None:
        self.ahead_max = min(self.ahead_max, line.at - line.store)
        if line.kind != "CLAIM":  # which may be the answer to an earlier call, and tells the time of that one
            self.ahead_min = max(self.ahead_min, line.sent - line.store)

    def _on_start(self, line: Line) -> None:
        life = self.lives[line.job]
        life.starts.append((line.at, line.fence, line.gen, line.pid))
        self.keys[line.key].add(line.job)
        hold = life.hold(line.fence)
        hold.starts += 1
        hold.gen = hold.gen or line.gen
        if not hold.started_at:
            hold.runner, hold.started_at = line.pid, line.at
        if line.how == "loop":
            self._blocking[line.pid, line.job, line.fence] = line.at

    def _on_end(self, line: Line) -> None:
        blocked_at = self._blocking.pop((line.pid, line.job, line.fence), 0)
        if blocked_at:
            self.blocked[line.pid].add(blocked_at, line.at)
        hold = self.lives[line.job].hold(line.fence)
        hold.ended_at, hold.end_how = line.at, line.how

    def _on_effect(self, line: Line) -> None:
        self.lives[line.job].effects.append((line.n, line.fence, line.key, line.fenced, line.keyed))

    def _on_renew_try(self, line: Line) -> None:
        self.lives[line.job].hold(line.fence).renewers.add(line.pid)

    def _on_renew(self, line: Line) -> None:
        self.answers[line.pid].append(line.at)
        hold = self.lives[line.job].hold(line.fence)
        hold.renewers.discard(line.pid)
        if not line.ok:
            return
        if line.sent > hold.renewed_sent:
            hold.renewed_sent, hold.renewed_at = line.sent, line.at

    def _on_settle_try(self, line: Line) -> None:
        if line.guard != "dead":
            self.lives[line.job].hold(line.fence).settle(line)

    def _on_settle_ok(self, line: Line) -> None:
        self.answers[line.pid].append(line.at)
        self.work.append(line.at)
        settle = self.lives[line.job].hold(line.fence).settle(line)
        if not settle.applied_at:
            settle.applied_at, settle.status, settle.store, settle.due = line.at, line.status, line.store, line.due

    def _on_settle_stale(self, line: Line) -> None:
        self.answers[line.pid].append(line.at)
        self.stale += 1
        if line.guard != "dead":
            self.lives[line.job].hold(line.fence).settle(line).refused_at = line.at

    def _on_requeue(self, line: Line) -> None:
        self.lives[line.job].requeues += 1

    def _on_cancel(self, line: Line) -> None:
        self.lives[line.job].cancels.append((line.at, line.how))
        self.lives[line.job].is_unwanted = True

    def _on_cancel_try(self, line: Line) -> None:
        self.lives[line.job].is_unwanted = True


def read_history(path: Path) -> History:
    """The history of a ledger file."""
    return History().take(read_lines(path))


def hash_of(path: Path) -> str:
    """The SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
