"""A program that knows nothing of the queue and holds SQLite's write lock: `python -m mulligan.torture.holder FILE SECONDS`.

As soon as it has the lock it prints `held` and a time at which it did not have it yet, a moment before.
"""

from __future__ import annotations

import sqlite3
import sys
import time

from mulligan.torture.ledger import mono_us

WAIT_S = 60
AGAIN_S = 0.002


def hold(connection: sqlite3.Connection) -> int:
    """Tries until it has the lock; the time just before the try that brought it."""
    last_us = mono_us() + WAIT_S * 1_000_000
    while True:
        at = mono_us()
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            if at > last_us:
                raise
            time.sleep(AGAIN_S)
        else:
            return at


if __name__ == "__main__":
    connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=0)
    sys.stdout.write(f"held {hold(connection)}\n")
    sys.stdout.flush()
    time.sleep(float(sys.argv[2]))
    connection.execute("ROLLBACK")
