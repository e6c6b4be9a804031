"""What `mulligan doctor` finds about the store itself: the file, the library, what a commit promises. Pure, but for the file's rights."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from mulligan.cli.finding import Finding, fail, ok, warn
from mulligan.core.contract import Promise, Weakness

WAL_BYTES_WARN = 64 * 1024 * 1024
BUG_NOTE = "two connections that write and checkpoint at the same moment can corrupt a file"
SAFE_NOTE = "mulligan is safe from it, because its writes and checkpoints take a lock file; another program that writes to the file is not"


def store_findings(facts: Mapping[str, object]) -> list[Finding]:
    """Findings from what a store tells of itself; a store that tells nothing has none."""
    if not facts:
        return []
    found = [ok("schema", f"version {facts.get('schema_version')}, the one this mulligan speaks")]
    if "sqlite_version" in facts:
        return [*found, _library(facts), _durability(facts), _journal(facts), _log_size(facts), _hints(facts)]
    return [*found, ok("server", str(facts.get("server"))), _hints(facts), *_warnings(facts)]


def promise_findings(promise: Promise) -> list[Finding]:
    """What the store keeps, in words; each way in which that is less than it was asked for is something to act on."""
    not_durable = warn("may be lost", promise.loss_window, "as it was asked for; use a durable store for what must not be lost")
    found = [
        ok("may be lost", promise.loss_window) if promise.durable else not_durable,
        ok("fail-over", promise.fail_over),
        ok("clock", promise.clock),
    ]
    return found + [fail("promise", weakness.what, weakness.advice) for weakness in promise.weaknesses]


def _warnings(facts: Mapping[str, object]) -> list[Finding]:
    """What a server's store noticed by itself."""
    noticed = facts.get("warnings")
    return [warn("noticed", one.what, one.advice) for one in noticed if isinstance(one, Weakness)] if isinstance(noticed, list) else []


def _library(facts: Mapping[str, object]) -> Finding:
    version = facts.get("sqlite_version")
    if not facts.get("wal_reset_bug"):
        return ok("library", f"SQLite {version}")
    return warn(
        "library",
        f"SQLite {version} has the WAL-reset bug of 3.7.0 to 3.51.2: {BUG_NOTE}; {SAFE_NOTE}",
        "let nothing but mulligan write to this file, or use a Python with SQLite 3.51.3 or newer",
    )


def _durability(facts: Mapping[str, object]) -> Finding:
    durability, synchronous = facts.get("durability"), str(facts.get("synchronous"))
    if durability == "normal":
        return warn(
            "durability",
            "normal: a killed process loses nothing, but a power loss may take the writes of the last moments (since the last checkpoint)",
            "leave ?durability=normal out of the store's URL where that matters; in batches, full costs little",
        )
    if synchronous.lower() not in ("full", "2", "extra", "3"):
        return fail(
            "durability", f"full was asked for, but SQLite runs with synchronous={synchronous}", "report this: it should not happen"
        )
    return ok("durability", "full: a commit waits for the disk, so nothing acknowledged is lost, as far as the disk keeps its word")


def _journal(facts: Mapping[str, object]) -> Finding:
    mode = str(facts.get("journal_mode"))
    if mode != "wal":
        return fail("journal", f"journal mode is {mode}, not wal", "put the file on a local disk where SQLite can keep a write-ahead log")
    return ok("journal", f"write-ahead log, {_size(facts.get('file_bytes'))} of data")


def _log_size(facts: Mapping[str, object]) -> Finding:
    size = facts.get("wal_bytes")
    text = _size(size)
    if isinstance(size, int) and size > WAL_BYTES_WARN:
        return warn(
            "write-ahead log",
            f"{text}: it cannot shrink while somebody reads, so some program keeps a read transaction open",
            "find it (fuser or lsof on the file) and let it end its transaction; long reads belong on a copy",
        )
    return ok("write-ahead log", text)


def _hints(facts: Mapping[str, object]) -> Finding:
    hints = str(facts.get("hints", "on"))
    if hints.startswith("off"):
        return warn(
            "wake-ups", f"{hints}; idle workers of other processes find new jobs by polling, after up to a second", "mend what it names"
        )
    return ok("wake-ups", "idle workers of other processes are woken at once")


def file_findings(path: Path) -> list[Finding]:
    """Whether the file's rights are as they should be."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if not os.access(path, os.R_OK | os.W_OK):
        return [
            fail("rights", f"this user may not read and write {path}", f"give it the right to, for example chown {os.geteuid()} {path}")
        ]
    if mode & 0o077:
        return [
            warn(
                "rights",
                f"mode {mode:03o}: other users of this machine may read or change the jobs",
                f"chmod 600 {path}, unless that is wanted",
            )
        ]
    return [ok("rights", f"mode {mode:03o}: only its owner reads and writes it")]


def _size(size: object) -> str:
    if not isinstance(size, int):
        return "unknown size"
    return f"{size / 1_048_576:,.1f} MiB" if size >= 1_048_576 else f"{size / 1024:,.0f} KiB"
