"""The reading thread: queries run beside the writer, each on one unchanging view of the file, and never take the write lock."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mulligan.core.clock import Clock
from mulligan.stores.sqlite.faults import DRIVER_ERRORS, translated
from mulligan.stores.sqlite.hop import Hop, Item, Outside, settle_future


class Reader(Hop):
    """The one connection of this store that only reads; SQLite itself refuses a write on it."""

    def __init__(self, path: str, clock: Clock) -> None:
        self._path = path
        super().__init__("mulligan-sqlite-reader", clock)

    def _do(self, items: list[Item]) -> None:
        for future, work in items:
            if future.set_running_or_notify_cancel():
                settle_future(future, work if isinstance(work, Outside) else partial(self._read, work), self._translate)

    def _read(self, work: Callable[[], Any]) -> Any:
        if self.connection is None:
            return work()  # It says for itself that the store is closed.
        self.connection.execute("BEGIN")
        try:
            return work()
        finally:
            # A view left open would keep the WAL from ever shrinking. Some errors have ended it already.
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")

    def _translate(self, problem: Exception) -> Exception:
        return translated(problem, self._path) if isinstance(problem, DRIVER_ERRORS) else problem
