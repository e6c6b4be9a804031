"""Ledgers written by hand: a story is told event by event, on a clock that moves only when told to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from mulligan.torture.checker import judge
from mulligan.torture.history import History
from mulligan.torture.ledger import Line, Row

MS, S = 1_000, 1_000_000
LEASE_US = 2 * S
OFFSET_US = 10**12  # the store's clock is so far ahead of the machine's
SETTINGS = {"lease_s": 2.0, "poll_s": 0.5, "max_crashes": 3, "max_retries": 4, "seed": 7}
PARENT, CHILD, OTHER_PARENT, OTHER, PRODUCER = 10, 11, 20, 21, 30


class Story:
    """What happens, in order. Each event takes a millisecond."""

    def __init__(self) -> None:
        self.at = 100 * S
        self.lines: list[Line] = []
        self.rows: dict[str, Row] = {}
        self.effects = 0
        self.note("RUN", 1, settings=SETTINGS)
        for pid, parent in ((PARENT, 1), (OTHER_PARENT, 1), (CHILD, PARENT), (OTHER, OTHER_PARENT), (PRODUCER, 1)):
            self.note("UP", pid, parent=parent)

    @property
    def store_us(self) -> int:
        """The store's time of now."""
        return self.at + OFFSET_US

    def wait(self, microseconds: int) -> Story:
        """Nothing happens for a while."""
        self.at += microseconds
        return self

    def note(self, kind: str, pid: int, **facts: Any) -> Story:
        """Any line."""
        self.at += MS
        self.lines.append(Line(kind=kind, at=self.at, pid=pid, **facts))
        return self

    def enqueue(self, job: str = "a", *, delay_us: int = 0, acknowledged: bool = True) -> Story:
        """A producer stores a job."""
        self.note("ENQ_TRY", PRODUCER, job=job)
        if acknowledged:
            self.note("ENQ_OK", PRODUCER, job=job, sent=self.at, store=self.store_us, due=self.store_us + delay_us)
        return self

    def claim(
        self, fence: int = 1, pid: int = CHILD, *, job: str = "a", gen: int = 1, claim_id: str = "", early_us: int = 0, due: int = 0
    ) -> Story:
        """A claim is answered."""
        store = self.store_us - early_us
        facts = {"sent": self.at, "store": store, "until": store + LEASE_US, "gen": gen, "id": claim_id or f"claim {job} {fence} {pid}"}
        return self.note("CLAIM", pid, job=job, fence=fence, due=due, **facts)

    def idle(self, pid: int) -> Story:
        """A claim is answered, and slots stay free."""
        return self.note("IDLE", pid, sent=self.at, store=self.store_us)

    def renew(self, fence: int = 1, pid: int = PARENT, *, job: str = "a") -> Story:
        """A lease is renewed."""
        return self.note("RENEW", pid, job=job, fence=fence, sent=self.at, ok=True)

    def start(self, fence: int = 1, pid: int = CHILD, *, job: str = "a", gen: int = 1, key: str = "", how: str = "") -> Story:
        """A handler begins."""
        return self.note("START", pid, job=job, fence=fence, gen=gen, key=key or f"{job}:{gen}", how=how)

    def effect(self, fence: int = 1, pid: int = CHILD, *, job: str = "a", gen: int = 1, fenced: bool = True, keyed: bool = True) -> Story:
        """The sink was asked."""
        self.effects += 1
        return self.note("EFFECT", pid, job=job, fence=fence, gen=gen, key=f"{job}:{gen}", n=self.effects, fenced=fenced, keyed=keyed)

    def end(self, fence: int = 1, pid: int = CHILD, *, job: str = "a", how: str = "ok") -> Story:
        """A handler ends."""
        return self.note("END", pid, job=job, fence=fence, how=how)

    def settle(
        self, fence: int = 1, pid: int = CHILD, *, job: str = "a", cause: str = "success", status: str = "done", guard: str = "held",
        gen: int = 1, answer: str = "SETTLE_OK", settle_id: str = "", due_us: int | None = 0, early_us: int = 0,
    ) -> Story:  # fmt: skip
        """An outcome is written, or not."""
        facts = {"job": job, "fence": fence, "cause": cause, "guard": guard, "gen": gen, "id": settle_id or f"{pid} {fence} {cause}"}
        self.note("SETTLE_TRY", pid, status=status, **facts)
        if answer:
            store = self.store_us - early_us
            due = store + due_us if status == "pending" and due_us is not None else 0
            self.note(answer, pid, sent=self.at, store=store, due=due, status=status, **facts)
        return self

    def run(self, fence: int = 1, pid: int = CHILD, *, job: str = "a", gen: int = 1) -> Story:
        """A whole execution that succeeds."""
        self.claim(fence, pid, job=job, gen=gen).start(fence, pid, job=job, gen=gen).effect(fence, pid, job=job, gen=gen)
        return self.end(fence, pid, job=job).settle(fence, pid, job=job, gen=gen)

    def kill(self, *pids: int, how: str = "kill child") -> Story:
        """The nemesis kills."""
        return self.note("NEMESIS", 1, step="start", how=how, pids=pids).note("NEMESIS", 1, step="stop", how=how, pids=pids)

    def pause(self, *pids: int, step: str = "start", how: str = "pause worker") -> Story:
        """The nemesis stops, or lets go on."""
        return self.note("NEMESIS", 1, step=step, how=how, pids=pids)

    def crash(self, fence: int = 1, pid: int = PARENT, *, status: str = "pending", guard: str = "held", early_us: int = 0) -> Story:
        """Somebody settles what a dead process has left."""
        return self.settle(fence, pid, cause="crash", status=status, guard=guard, early_us=early_us)

    def row(self, status: str = "done", *, job: str = "a", **fields: Any) -> Story:
        """The job as it is stored at the end."""
        is_over = status in ("done", "failed", "cancelled")
        given = {
            "id": job, "status": status, "run_at": self.store_us if status == "pending" else None,
            "finished_at": self.store_us if is_over else None, "owner": "w" if status == "processing" else None,
            "lease_until": self.store_us if status == "processing" else None, "attempts": 1, "failures": 0, "crashes": 0, "snoozes": 0,
            "releases": 0, "generation": 1, "fence": 1, "max_retries": 4,
        }  # fmt: skip
        self.rows[job] = Row(**given | fields)
        return self

    def report(self, slack_s: float = 0.0) -> dict[str, Any]:
        """What the checker makes of it."""
        return judge(History().take(self.lines), self.rows, slack_s)

    def convicted(self, slack_s: float = 0.0) -> set[str]:
        """The checks that complain."""
        return {check for check, count in self.report(slack_s)["by_check"].items() if count}

    def write(self, folder: Path) -> tuple[Path, Path]:
        """The two files that the checker reads."""
        ledger, state = folder / "ledger.jsonl", folder / "state.jsonl"
        ledger.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in self.lines))
        state.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in self.rows.values()))
        return ledger, state


def story() -> Story:
    """The beginning of a story."""
    return Story()
