"""What the replica set can keep with the settings it really runs under, for `mulligan doctor`."""

from __future__ import annotations

from typing import Any

from pymongo.errors import OperationFailure

from mulligan.core.contract import Promise, Weakness
from mulligan.stores.mongo import schema
from mulligan.stores.mongo.database import Database, Doc


async def promise(database: Database) -> Promise:
    """The promise, from the configuration of the set and the state of the server."""
    hello = await database.client.admin.command("hello")
    config = await _asked(database, "replSetGetConfig", "config")
    server = await _asked(database, "serverStatus")
    weaknesses = [*_of_set(hello, config), *_of_server(server), *await _of_schema(database)]
    voters = sum(1 for member in _members(config, hello) if member.get("votes", 1))
    data = sum(1 for member in _members(config, hello) if not member.get("arbiterOnly"))
    in_memory = _engine(server) == "inMemory"
    return Promise(
        durable=not in_memory,
        loss_window=(
            "everything, when the servers stop: they keep data in memory only"
            if in_memory
            else "nothing that was acknowledged: every write is in the journals of the majority of the members before it is answered"
        ),
        fail_over=(
            "none: the set has one member that holds data; while it is down the store is unavailable, and nothing is lost"
            if data < 2
            else f"{voters} voting members, {data} with data: acknowledged writes survive the loss of any minority, calls are repeated"
        ),
        clock="the primary's, in milliseconds; after a fail-over that of the new primary, so keep the members' clocks together (NTP)",
        weaknesses=tuple(weaknesses),
    )


async def describe(database: Database, hints: str) -> dict[str, object]:
    """What there is to know about the server and the database."""
    hello = await database.client.admin.command("hello")
    build = await database.client.admin.command("buildInfo")
    compatible = await _asked(database, {"getParameter": 1, "featureCompatibilityVersion": 1}, "featureCompatibilityVersion")
    sizes = await _asked(database, "dbStats")
    return {
        "server": f"MongoDB {build.get('version')}",
        "set": hello.get("setName", "sharded cluster" if hello.get("msg") == "isdbgrid" else ""),
        "primary": hello.get("primary", hello.get("me", "")),
        "members": sorted([*hello.get("hosts", []), *hello.get("passives", []), *hello.get("arbiters", [])]),
        "feature_compatibility_version": compatible.get("version", "unknown"),
        "database": database.name,
        "schema_version": await schema.stored_version(database),
        "indexes": sorted(await database.jobs.index_information()),
        "jobs": await database.jobs.estimated_document_count(),
        "data_bytes": int(sizes.get("dataSize", 0)),
        "index_bytes": int(sizes.get("indexSize", 0)),
        "dead_letters": "off" if database.letters is None else database.letters.name,
        "hints": "on" if not hints else f"off: {hints}",
    }


async def _asked(database: Database, command: str | Doc, part: str = "") -> Doc:
    """The answer to a question that not every user may ask; empty if this one may not."""
    place = database.plain if command == "dbStats" else database.client.admin
    try:
        answer: Doc = await place.command(command)
    except OperationFailure:
        return {}
    return answer.get(part, {}) if part else answer


def _members(config: Doc, hello: Doc) -> list[Doc]:
    return config.get("members") or [{"host": host} for host in hello.get("hosts", [])]


def _engine(server: Doc) -> str:
    return str(server.get("storageEngine", {}).get("name", "wiredTiger"))


def _of_set(hello: Doc, config: Doc) -> list[Weakness]:
    found = []
    if hello.get("msg") == "isdbgrid":
        found.append(
            Weakness(what="this is a sharded cluster, on which the store is not tested", advice="keep the collections mulligan_* unsharded")
        )
    if config.get("writeConcernMajorityJournalDefault") is False:
        found.append(
            Weakness(
                what="writeConcernMajorityJournalDefault is off: a majority may confirm a write before it is in its journals",
                advice="set writeConcernMajorityJournalDefault to true with rs.reconfig()",
            )
        )
    members = config.get("members") or []
    voters = [member for member in members if member.get("votes", 1)]
    bearing = [member for member in voters if not member.get("arbiterOnly")]
    if voters and len(bearing) <= len(voters) // 2:
        found.append(
            Weakness(
                what="fewer than a majority of the voting members hold data: with one of them down, no write can be confirmed",
                advice="replace arbiters by members that hold data",
            )
        )
    return found


def _of_server(server: Doc) -> list[Weakness]:
    if _engine(server) == "inMemory":
        return [Weakness(what="the storage engine is inMemory: a restart loses every job", advice="run mongod with the engine wiredTiger")]
    return []


async def _of_schema(database: Database) -> list[Weakness]:
    missing: list[Any] = await schema.missing_indexes(database)
    if not missing:
        return []
    advice = "stop the workers, remove the document schema from mulligan_meta and open the store again: it makes them"
    return [Weakness(what=f"indexes are missing: {', '.join(missing)}", advice=advice)]
