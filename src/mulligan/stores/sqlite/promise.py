"""What a SQLite file can keep, from the settings it runs under."""

from __future__ import annotations

from collections.abc import Mapping

from mulligan.core.contract import Promise, Weakness

_AFTER_POWER_LOSS = "a killed process loses nothing; a power loss may take the commits since the last checkpoint of the write-ahead log"


def promise_of(facts: Mapping[str, object]) -> Promise:
    """The promise of a file that describes itself so."""
    durability, synchronous, journal = facts["durability"], facts["synchronous"], facts["journal_mode"]
    weaknesses = []
    if durability == "full" and synchronous not in ("full", "extra"):
        weaknesses.append(
            Weakness(what=f"durability=full was asked for, but SQLite runs with synchronous={synchronous}", advice="report this as a bug")
        )
    if journal != "wal":
        weaknesses.append(
            Weakness(
                what=f"the journal mode is {journal}, not wal",
                advice="put the file on a local disk, where SQLite can keep a write-ahead log",
            )
        )
    is_synced = synchronous in ("full", "extra")
    return Promise(
        durable=synchronous != "off",
        loss_window="nothing that was acknowledged, as far as the disk keeps its word" if is_synced else _AFTER_POWER_LOSS,
        fail_over="none: the jobs are where the file is; back it up like any file that matters",
        clock="the clock of this machine",
        weaknesses=tuple(weaknesses),
    )
