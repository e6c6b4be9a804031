from __future__ import annotations

import pytest
import redis

from mulligan.core.errors import BadSetting
from mulligan.stores.redis import from_url
from mulligan.stores.redis.durability import Facts, check, promise_of, read_facts
from tests.servers import Redis


def facts(**given: object) -> Facts:
    """A server as it should be, but for what is given."""
    usual: dict[str, object] = {
        "version": "7.0.15",
        "server": "Redis",
        "role": "master",
        "replicas": 0,
        "appendonly": True,
        "appendfsync": "everysec",
        "snapshots": False,
        "eviction": "noeviction",
        "maxmemory": 0,
        "used_memory": 1,
        "aof_write_ok": True,
        "cluster": False,
    }
    return Facts(**(usual | given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fsync, words", [("always", "nothing: every write"), ("everysec", "about the last second"), ("no", "half a minute")]
)
async def test_the_real_settings_are_told(fsync: str, words: str) -> None:
    """The promise follows appendfsync as it is set on the server at that moment."""
    with Redis(options={"appendfsync": fsync}) as server:
        store = from_url(server.url)
        await store.open()
        promise = await store.promise()
        await store.close()
    assert promise.durable
    assert words in promise.loss_window
    assert bool(promise.weaknesses) == (fsync == "no")


async def test_no_append_only_file_is_refused_unless_asked_for() -> None:
    """A server that would lose jobs at a restart is refused with what to set; ?durability=volatile accepts it, and the promise says so."""
    with Redis(options={"appendonly": "no"}) as server:
        with pytest.raises(BadSetting, match="appendonly yes"):
            await from_url(server.url).open()
        store = from_url(f"{server.url}?durability=volatile")
        await store.open()
        promise = await store.promise()
        await store.close()
    assert not promise.durable
    assert promise.loss_window == "everything, on any restart"
    assert promise.weaknesses == ()


@pytest.mark.parametrize("option", ["", "?durability=volatile"])
async def test_eviction_of_any_key_is_refused(option: str) -> None:
    """A server that throws away keys of its choice is refused, even where jobs may be lost at a restart."""
    with Redis(options={"maxmemory-policy": "allkeys-lru"}) as server, pytest.raises(BadSetting, match="noeviction"):
        await from_url(server.url + option).open()


@pytest.mark.parametrize("policy", ["noeviction", "volatile-lru", "volatile-ttl"])
async def test_eviction_of_keys_with_a_time_to_live_is_fine(policy: str) -> None:
    """No key of the store has a time to live, so a volatile policy never touches one."""
    with Redis(options={"maxmemory-policy": policy}) as server:
        store = from_url(server.url)
        await store.open()
        assert (await store.promise()).weaknesses == ()
        await store.close()


async def test_a_server_that_forbids_config_tells_by_info() -> None:
    """Where CONFIG is forbidden, INFO still tells whether there is an append-only file and what is evicted."""
    with Redis() as server:
        with redis.Redis.from_url(server.url) as client:
            client.execute_command("ACL", "SETUSER", "tenant", "on", ">secret", "~*", "&*", "+@all", "-config")
        store = from_url(server.url.replace("redis://", "redis://tenant:secret@"))
        await store.open()
        found = await store._call(lambda: read_facts(store._db.client))
        promise = await store.promise()
        await store.close()
    assert (found.appendonly, found.appendfsync, found.eviction) == (True, None, "noeviction")
    assert "unknown here" in promise.loss_window


@pytest.mark.parametrize(
    "given, words",
    [
        ({"appendonly": None}, "does not tell whether"),
        ({"eviction": None}, "does not tell its maxmemory-policy"),
        ({"aof_write_ok": False}, "failed"),
        ({"role": "slave"}, "replica"),
        ({"appendonly": False}, "no append-only file"),
    ],
)
def test_every_weakness_is_named(given: dict[str, object], words: str) -> None:
    """Each setting that keeps less than was asked for is one weakness, with advice."""
    [weakness] = promise_of(facts(**given), "aof", ()).weaknesses
    assert words in weakness.what
    assert weakness.advice


def test_replicas_are_told() -> None:
    """With replicas the promise says that a fail-over may lose acknowledged writes."""
    assert "asynchronous" in promise_of(facts(replicas=1), "aof", ()).fail_over


def test_old_servers_are_refused() -> None:
    """A server below 6.2 is refused; Valkey counts its versions anew."""
    with pytest.raises(BadSetting, match="6.2"):
        check(facts(version="5.0.14"), "aof", "here")
    check(facts(server="Valkey", version="8.1.0"), "aof", "here")
