"""What a server promises under the settings it really runs with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import redis.asyncio as driver
from redis.exceptions import BusyLoadingError, ResponseError

from mulligan.core.clock import us_to_datetime
from mulligan.core.contract import Promise, Weakness
from mulligan.core.errors import BadSetting
from mulligan.stores.redis.losses import Loss

VERSION_MIN = (6, 2)
MEMORY_WARN = 0.8

_REPLICAS = "replication is asynchronous: a replica that takes over may lack the last acknowledged writes; an open store notices it"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that matter; None where the server does not tell."""

    version: str
    server: str  # Redis or Valkey
    role: str
    replicas: int
    appendonly: bool | None
    appendfsync: str | None
    snapshots: bool | None
    eviction: str | None
    maxmemory: int | None
    used_memory: int | None
    aof_write_ok: bool
    cluster: bool


async def read_facts(client: driver.Redis) -> Facts:
    """Asks the server. CONFIG is forbidden on many managed services; INFO then tells the most important part."""
    info: dict[str, Any] = {}
    for section in ("persistence", "server", "replication", "memory", "cluster"):
        info |= await client.info(section)
    if int(info.get("loading", 0)):  # until it has read its file it says that it writes none
        raise BusyLoadingError("LOADING: it is reading its data")
    config: Mapping[str, str] = {}
    try:
        for name in ("appendonly", "appendfsync", "save", "maxmemory-policy", "maxmemory"):
            config = {**config, **_texts(await client.config_get(name))}
    except ResponseError:
        config = {}
    aof = info.get("aof_enabled")
    return Facts(
        version=str(info.get("valkey_version") or info.get("redis_version", "0")),
        server="Valkey" if "valkey_version" in info else "Redis",
        role=str(info.get("role", "")),
        replicas=int(info.get("connected_slaves", 0)),
        appendonly=bool(int(aof)) if aof is not None else (config["appendonly"] == "yes" if "appendonly" in config else None),
        appendfsync=config.get("appendfsync"),
        snapshots=bool(config["save"]) if "save" in config else None,
        eviction=info.get("maxmemory_policy") or config.get("maxmemory-policy"),
        maxmemory=_number(info.get("maxmemory", config.get("maxmemory"))),
        used_memory=_number(info.get("used_memory")),
        aof_write_ok=str(info.get("aof_last_write_status", "ok")) == "ok",
        cluster=bool(int(info.get("cluster_enabled", 0))),
    )


def check(facts: Facts, durability: str, where: str) -> None:
    """BadSetting for a server that would lose jobs although the URL does not allow it."""
    if _version(facts.version) < VERSION_MIN and facts.server == "Redis":
        raise BadSetting(f"{where} is Redis {facts.version}; mulligan needs 6.2 or newer, or Valkey")
    if (facts.eviction or "").startswith("allkeys-"):
        raise BadSetting(
            f"{where} throws jobs away when its memory is full (maxmemory-policy {facts.eviction}); "
            "set maxmemory-policy noeviction, or use a server of its own for the jobs"
        )
    if facts.appendonly is False and durability == "aof":
        raise BadSetting(
            f"{where} keeps no append-only file: a restart would lose jobs. Set appendonly yes there (and in its configuration file); "
            "or add ?durability=volatile to the URL if jobs may be lost"
        )


def promise_of(facts: Facts, durability: str, losses: tuple[Loss, ...]) -> Promise:
    """What may be relied on, in words."""
    return Promise(
        durable=facts.appendonly is True,
        loss_window=_loss_window(facts),
        fail_over=_REPLICAS
        if facts.replicas or facts.role != "master"
        else "no replica is connected: without the server there is no store",
        clock="the server's own TIME; after a fail-over that of the new server",
        weaknesses=(*_weaknesses(facts, durability), *(_weakness_of(loss) for loss in losses)),
    )


def _loss_window(facts: Facts) -> str:
    if facts.appendonly is None:
        return "unknown: the server does not tell whether it keeps an append-only file"
    if not facts.appendonly:
        return "everything since the last snapshot, on any restart" if facts.snapshots else "everything, on any restart"
    return {
        "always": "nothing: every write is on disk before it is acknowledged",
        "everysec": "nothing when the process is killed; about the last second on a power loss",
        "no": "nothing when the process is killed; up to about half a minute on a power loss",
    }.get(facts.appendfsync or "", "nothing when the process is killed; on a power loss what appendfsync (unknown here) leaves open")


def _weaknesses(facts: Facts, durability: str) -> list[Weakness]:
    found = []
    if durability == "aof" and facts.appendonly is not True:
        what = "has no append-only file" if facts.appendonly is False else "does not tell whether it keeps an append-only file"
        found.append(
            Weakness(what=f"the server {what}", advice="set appendonly yes, or ask the provider; ?durability=volatile accepts the loss")
        )
    if facts.appendonly and facts.appendfsync == "no":
        found.append(Weakness(what="appendfsync is no: the system decides when writes reach the disk", advice="set appendfsync everysec"))
    if facts.eviction is None:
        found.append(Weakness(what="the server does not tell its maxmemory-policy", advice="make sure that it is noeviction"))
    elif facts.eviction.startswith("allkeys-"):
        found.append(Weakness(what=f"maxmemory-policy {facts.eviction} throws jobs away", advice="set maxmemory-policy noeviction"))
    if not facts.aof_write_ok:
        found.append(Weakness(what="the last write of the append-only file failed", advice="look into the server's log, and at its disk"))
    if facts.role not in ("", "master"):
        found.append(Weakness(what="this server is a replica", advice="point the URL at the primary"))
    return found


def warnings_of(facts: Facts) -> list[Weakness]:
    """What is not wrong yet, but soon may be."""
    found = []
    if facts.maxmemory and facts.used_memory and facts.used_memory > MEMORY_WARN * facts.maxmemory:
        what = f"{facts.used_memory / facts.maxmemory:.0%} of maxmemory is used; when it is full, new jobs are refused"
        found.append(Weakness(what=what, advice="prune old jobs, shorten their retention, or raise maxmemory"))
    if facts.maxmemory == 0:
        what = "maxmemory is not set: jobs may take all memory of the machine, and the system may then kill the server"
        found.append(Weakness(what=what, advice="set maxmemory, with maxmemory-policy noeviction"))
    return found


def _weakness_of(loss: Loss) -> Weakness:
    return Weakness(
        what=f"data was lost on {us_to_datetime(loss.at_us):%Y-%m-%d %H:%M:%S} UTC: {loss.what}",
        advice="find out why the server lost it; forget_losses() clears this note",
    )


def _texts(found: Mapping[Any, Any]) -> dict[str, str]:
    return {_text(name): _text(value) for name, value in found.items()}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
