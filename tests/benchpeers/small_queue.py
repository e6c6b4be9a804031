"""A queue of a few lines on SQLite that behaves as badly as its variant says, as a peer for the tests of the runner.

deletes: taking a job deletes it. keeps: what a dead worker had taken stays taken. returns: a new worker takes it again, with what had
been finished but not yet written, as that is done for a whole batch.
crashes: the worker ends with an error. silent: the worker never tells that it is ready. forgets: some of what is enqueued is not stored.
"""

from __future__ import annotations

import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "peers" / "adapters"))

import adapter
import jobs

DONE, WAITING, TAKEN = 0, 1, 2


def opened(url: str) -> sqlite3.Connection:
    store = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=30)
    store.execute("PRAGMA synchronous = off")
    return store


class Sender:
    def __init__(self, url: str) -> None:
        self._url = url
        self._own = threading.local()  # a connection is of the thread that has made it

    def one(self, kind: str, number: int) -> None:
        if not hasattr(self._own, "store"):
            self._own.store = opened(self._url)
        if adapter.variant() != "forgets" or number % 10:
            self._own.store.execute("INSERT INTO jobs VALUES (?, ?, 1, ?)", (number, kind, WAITING))


class SmallQueue:
    def prepare(self, url: str) -> None:
        opened(url).executescript(
            "PRAGMA journal_mode = wal; CREATE TABLE jobs (number INTEGER, kind TEXT, attempt INTEGER, state INTEGER)"
        )

    def sender(self, url: str) -> Sender:
        return Sender(url)

    def left(self, url: str) -> Callable[[], int]:
        store = opened(url)
        return lambda: int(store.execute("SELECT count(*) FROM jobs WHERE state <> ?", (DONE,)).fetchone()[0])

    def work(self, url: str) -> None:
        if adapter.variant() == "crashes":
            raise ZeroDivisionError("it never worked")
        batch = adapter.tuned("batch")
        if batch < 1:
            raise ValueError(f"a batch of {batch}")
        store = opened(url)
        if adapter.variant() == "returns":
            store.execute("UPDATE jobs SET state = ? WHERE state = ?", (WAITING, TAKEN))
        adapter.end_on_sigterm()
        if adapter.variant() != "silent":
            adapter.ready()
        while True:
            rows = store.execute("SELECT rowid, kind, number, attempt FROM jobs WHERE state = ? LIMIT ?", (WAITING, batch)).fetchall()
            state = DONE if adapter.variant() == "deletes" else TAKEN
            store.executemany("UPDATE jobs SET state = ? WHERE rowid = ?", [(state, row[0]) for row in rows])
            outcomes = []
            for row, *job in rows:
                outcomes.append((self._state_after(*job), row))
                if adapter.variant() != "returns":
                    self._write(store, outcomes)
            self._write(store, outcomes)
            if not rows:
                time.sleep(0.002)

    def _state_after(self, kind: str, number: int, attempt: int) -> int:
        try:
            jobs.storm(number, attempt) if kind == "storm" else getattr(jobs, kind)(number)
        except jobs.TryAgain:
            return WAITING
        return DONE

    def _write(self, store: sqlite3.Connection, outcomes: list[tuple[int, int]]) -> None:
        store.executemany("UPDATE jobs SET state = ?, attempt = attempt + 1 WHERE rowid = ?", outcomes)
        outcomes.clear()


if __name__ == "__main__":
    adapter.main(SmallQueue())
