"""What a server counts when its clients get into each other's way, in its own words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def trouble(store: str, server: str | None) -> dict[str, int]:
    """The counters so far. SQLite has none: there, whoever is second waits, which the times of the claims tell."""
    return {} if server is None else _COUNTERS[store](server)


def since(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """What was added."""
    return {name: after[name] - before[name] for name in after}


def _postgres(url: str) -> dict[str, int]:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT xact_rollback, deadlocks FROM pg_stat_database WHERE datname = current_database()",
        ).fetchone()
    assert row is not None
    return {"rollbacks": row[0], "deadlocks": row[1]}


def _mongo(url: str) -> dict[str, int]:
    import pymongo

    client: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(url)
    try:
        counted = client.admin.command("serverStatus")
    finally:
        client.close()
    return {
        "write_conflicts": int(counted["metrics"]["operation"]["writeConflicts"]),
        "aborted": int(counted["transactions"]["totalAborted"]),
    }


def _redis(url: str) -> dict[str, int]:
    import redis

    client = redis.Redis.from_url(url)
    try:
        # The driver introduces itself with a command that older servers do not know, and a script that is new to the server is sent in
        # whole after a refusal: every process has a few of these at its start.
        unknown = int(client.info("errorstats").get("errorstat_NOSCRIPT", {"count": 0})["count"])
        calls = {name: one for name, one in client.info("commandstats").items() if not name.startswith("cmdstat_client")}
        return {"failed_commands": sum(int(one.get("failed_calls", 0)) for one in calls.values()) - unknown}
    finally:
        client.close()


_COUNTERS: dict[str, Callable[[str], dict[str, int]]] = {"postgres": _postgres, "mongo": _mongo, "redis": _redis}
