"""A program that knows nothing of the queue and holds SQLite's write lock: `python -m mulligan.torture.holder FILE SECONDS`."""

from __future__ import annotations

import sqlite3
import sys
import time

WAIT_S = 60

if __name__ == "__main__":
    connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=WAIT_S)
    connection.execute("BEGIN IMMEDIATE")
    sys.stdout.write("held\n")
    sys.stdout.flush()
    time.sleep(float(sys.argv[2]))
    connection.execute("ROLLBACK")
