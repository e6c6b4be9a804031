"""The ledger put in order: what became of every job under each of its fences, and what was done to the processes.

Reads line by line and keeps a small record per claim. Knows nothing of the queue beyond the format of the ledger.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mulligan.torture.ledger import Line, read_lines

FOREVER = 1 << 62


class Settle:
    """One outcome that somebody tried to write, by its id; a repeat of the call is the same one."""

    __slots__ = ("applied_at", "cause", "due", "gen", "guard", "id", "pid", "refused", "status", "store", "tried_at")

    def __init__(self, line: Line) -> None:
        self.id = line.id
        self.pid = line.pid
        self.tried_at = line.at  # the first try
        self.cause = line.cause
        self.guard = line.guard
        self.gen = line.gen
        self.status = line.status
        self.applied_at = 0  # the first time the store said so; 0: it never did
        self.refused = False
        self.store = 0
        self.due = 0


class Hold:
    """One fence of one job: from the claim to whatever ended it."""

    __slots__ = (
        "claim_id", "claimed_at", "claimed_store", "claimer", "end_how", "ended_at", "gen", "other_claims", "renewed_at",
        "renewed_sent", "runner", "sent", "settles", "started_at", "starts", "until",
    )  # fmt: skip

    def __init__(self) -> None:
        self.claimer = 0
        self.claim_id = ""
        self.other_claims = 0  # claims of other ids that were given the same fence
        self.sent = 0
        self.claimed_at = 0  # 0: nobody lived to note it
        self.claimed_store = 0
        self.until = 0
        self.gen = 0
        self.runner = 0
        self.starts = 0
        self.started_at = 0
        self.ended_at = 0
        self.end_how = ""
        self.renewed_sent = 0  # of the last renewal that was granted
        self.renewed_at = 0
        self.settles: list[Settle] = []

    @property
    def holder(self) -> int:
        """The process in whose hands it was last."""
        return self.runner or self.claimer

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

    __slots__ = ("acknowledged_at", "cancels", "due", "effects", "holds", "requeues", "starts", "tries")

    def __init__(self) -> None:
        self.tries = 0
        self.acknowledged_at = 0
        self.due = 0
        self.holds: dict[int, Hold] = {}
        self.starts: list[tuple[int, int, int, int]] = []  # time, fence, generation, pid
        self.effects: list[tuple[int, int, str, bool, bool]] = []  # order, fence, key, accepted by fence, and by key
        self.cancels: list[tuple[int, str]] = []
        self.requeues = 0

    def hold(self, fence: int) -> Hold:
        if fence not in self.holds:
            self.holds[fence] = Hold()
        return self.holds[fence]


class Spans:
    """Stretches of time: of outages, of pauses."""

    def __init__(self) -> None:
        self.spans: list[tuple[int, int]] = []

    def within(self, begin: int, end: int) -> int:
        """How much of this time lies in any of them, each counted once."""
        covered, reached = 0, begin
        for start, stop in sorted(self.spans):
            first, last = max(start, reached), min(stop, end)
            if last > first:
                covered += last - first
                reached = last
        return covered


class History:
    """All that a ledger tells."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {}
        self.lives: dict[str, Life] = defaultdict(Life)
        self.parents: dict[int, int] = {}
        self.deaths: dict[int, list[int]] = defaultdict(list)
        self.pauses: dict[int, Spans] = defaultdict(Spans)
        self.outages = Spans()
        self.idle: dict[int, list[list[int]]] = defaultdict(list)  # by process: from an empty answer to the next call
        self.keys: dict[str, set[str]] = defaultdict(set)
        self.faults: dict[str, int] = defaultdict(int)
        self.lines = self.stale = self.late_renewals = 0
        self.ahead_min, self.ahead_max = -FOREVER, FOREVER  # bounds of how far the machine's clock is ahead of the store's
        self.last_at = 0
        self._open: dict[tuple[str, tuple[int, ...]], int] = {}

    def death_after(self, pid: int, at: int) -> int:
        """When this process was killed, if that was after this time; else never."""
        times = self.deaths.get(pid)
        if not times:
            return FOREVER
        place = bisect_left(times, at)
        return times[place] if place < len(times) else FOREVER

    def was_paused(self, pid: int, begin: int, end: int) -> bool:
        """Whether this process, or the one that renews its leases, was stopped at some moment of this time."""
        return any(self.pauses[one].within(begin, end) for one in (pid, self.parents.get(pid, 0)) if one in self.pauses)

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
        return self

    # --- processes -------------------------------------------------------------------------------------------------------

    def _on_run(self, line: Line) -> None:
        self.settings = line.settings

    def _on_up(self, line: Line) -> None:
        self.parents[line.pid] = line.parent

    def _on_nemesis(self, line: Line) -> None:
        key = (line.how, line.pids)
        if line.how.startswith("kill"):
            if line.step == "start":
                self.faults[line.how] += 1
                for pid in line.pids:
                    self.deaths[pid].append(line.at)
        elif line.step == "start":
            self.faults[line.how] += 1
            self._open[key] = line.at
        elif key in self._open:
            self._span(line.how, line.pids, self._open.pop(key), line.at)

    def _span(self, how: str, pids: tuple[int, ...], begin: int, end: int) -> None:
        if how.startswith("pause"):
            for pid in pids:
                self.pauses[pid].spans.append((begin, end))
        else:
            self.outages.spans.append((begin, end))

    # --- jobs ------------------------------------------------------------------------------------------------------------

    def _on_enq_try(self, line: Line) -> None:
        self.lives[line.job].tries += 1

    def _on_enq_ok(self, line: Line) -> None:
        life = self.lives[line.job]
        life.acknowledged_at = life.acknowledged_at or line.at
        if life.tries == 1:  # a repeated call is answered with a later time
            life.due = line.due

    def _on_claim(self, line: Line) -> None:
        self._compare_clocks(line)
        self._end_idle(line)
        hold = self.lives[line.job].hold(line.fence)
        if hold.claimed_at:
            hold.other_claims += hold.claim_id != line.id
            return
        hold.claimer, hold.claim_id, hold.sent = line.pid, line.id, line.sent
        hold.claimed_at, hold.claimed_store, hold.until, hold.gen = line.at, line.store, line.until, line.gen

    def _on_found(self, line: Line) -> None:
        """A supervisor has looked for what a dead child had claimed; that it was claimed is known now, but not when."""
        self.lives[line.job].hold(line.fence).gen = line.gen

    def _on_idle(self, line: Line) -> None:
        self._compare_clocks(line)
        self._end_idle(line)
        self.idle[line.pid].append([line.at, 0])

    def _end_idle(self, line: Line) -> None:
        spans = self.idle.get(line.pid)
        if spans and not spans[-1][1] and line.sent >= spans[-1][0]:
            spans[-1][1] = line.sent

    def _compare_clocks(self, line: Line) -> None:
        self.ahead_min = max(self.ahead_min, line.sent - line.store)
        self.ahead_max = min(self.ahead_max, line.at - line.store)

    def _on_start(self, line: Line) -> None:
        life = self.lives[line.job]
        life.starts.append((line.at, line.fence, line.gen, line.pid))
        self.keys[line.key].add(line.job)
        hold = life.hold(line.fence)
        hold.starts += 1
        hold.gen = hold.gen or line.gen
        if not hold.started_at:
            hold.runner, hold.started_at = line.pid, line.at

    def _on_end(self, line: Line) -> None:
        hold = self.lives[line.job].hold(line.fence)
        hold.ended_at, hold.end_how = line.at, line.how

    def _on_effect(self, line: Line) -> None:
        self.lives[line.job].effects.append((line.n, line.fence, line.key, line.fenced, line.keyed))

    def _on_renew(self, line: Line) -> None:
        if not line.ok:
            return
        hold = self.lives[line.job].hold(line.fence)
        if line.sent > hold.renewed_sent:
            hold.renewed_sent, hold.renewed_at = line.sent, line.at

    def _on_settle_try(self, line: Line) -> None:
        if line.guard != "dead":
            self.lives[line.job].hold(line.fence).settle(line)

    def _on_settle_ok(self, line: Line) -> None:
        settle = self.lives[line.job].hold(line.fence).settle(line)
        if not settle.applied_at:
            settle.applied_at, settle.status, settle.store, settle.due = line.at, line.status, line.store, line.due

    def _on_settle_stale(self, line: Line) -> None:
        self.stale += 1
        if line.guard != "dead":
            self.lives[line.job].hold(line.fence).settle(line).refused = True

    def _on_requeue(self, line: Line) -> None:
        self.lives[line.job].requeues += 1

    def _on_cancel(self, line: Line) -> None:
        self.lives[line.job].cancels.append((line.at, line.how))


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
