"""A program that knows nothing of mulligan and holds SQLite's write lock: `python -m tests.processes.holder FILE`, until told to let go."""

from __future__ import annotations

import sqlite3
import sys

if __name__ == "__main__":
    connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
    print("ready", flush=True)
    for _ in sys.stdin:
        connection.execute("BEGIN IMMEDIATE")
        print("held", flush=True)
        sys.stdin.readline()
        connection.execute("ROLLBACK")
        print("free", flush=True)
