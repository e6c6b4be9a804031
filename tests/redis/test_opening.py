from __future__ import annotations

import threading

import pytest
import redis

from mulligan.core.errors import BadSetting, SchemaMismatch, StoreUnavailable
from mulligan.stores.redis import RedisStore, from_url
from mulligan.stores.redis.server import SCHEMA_VERSION
from mulligan.stores.redis.url import parse
from tests.builders import claim, new_job
from tests.redis.keys import command, keys
from tests.servers import Redis
from tests.servers.ports import HOST


@pytest.mark.parametrize(
    "url, words",
    [
        ("redis://user:secret@host/0?nosuch=1", "unknown option nosuch"),
        ("redis://user:secret@host/zero", "number of a database"),
        ("redis://user:secret@host:port/0", "not a store URL"),
        ("redis://user:secret@host/0?app=Bad App", "app must be"),
        ("redis://user:secret@host/0?timeout=99", "timeout must be"),
        ("redis://user:secret@host/0?connections=0", "connections must be"),
        ("redis://user:secret@host/0?durability=full", "durability must be"),
        ("redis://user:secret@host/0?app=a&app=b", "given twice"),
    ],
)
def test_bad_urls_are_refused(url: str, words: str) -> None:
    """A URL that cannot be right is refused when it is read, without showing its password."""
    with pytest.raises(BadSetting, match=words) as caught:
        from_url(url)
    assert "secret" not in str(caught.value)


def test_urls_are_taken_apart() -> None:
    """Our options leave the URL, the driver's stay, and what is shown has no secrets."""
    address = parse("rediss://user:secret@host:7000/3?app=shop&ssl_cert_reqs=none&timeout=2&connections=4&durability=volatile")
    assert address.driver_url == "rediss://user:secret@host:7000/3?ssl_cert_reqs=none"
    assert (address.url, address.where) == ("rediss://***@host:7000/3?app=shop", "Redis at host:7000")
    assert (address.app, address.timeout_s, address.connections, address.durability) == ("shop", 2.0, 4, "volatile")


async def test_nobody_there() -> None:
    """A server that cannot be reached is named with its host and port, and what to check."""
    with Redis() as server:
        url = server.url
    with pytest.raises(StoreUnavailable, match=rf"{HOST}:{server.port} cannot be reached.*is it running"):
        await from_url(url).open()


async def test_a_wrong_password_is_told(server: Redis) -> None:
    """A wrong or a missing password is refused without showing it."""
    with redis.Redis.from_url(server.url) as client:
        client.config_set("requirepass", "right")
    for wrong in ("redis://:secret-but-wrong@", "redis://"):
        with pytest.raises(BadSetting, match="refuses the user or the password") as caught:
            await from_url(server.url.replace("redis://", wrong)).open()
        assert "secret" not in str(caught.value)
    store = from_url(server.url.replace("redis://", "redis://:right@"))
    await store.open()
    assert "right" not in store.url
    await store.close()


async def test_a_server_that_still_reads_its_file_is_not_there_yet(server: Redis) -> None:
    """A worker that starts in that moment waits: until then the server says that it keeps no file, which would be a reason to give up."""
    with redis.Redis.from_url(server.url) as client, client.pipeline(transaction=False) as pipe:
        for number in range(20_000):
            pipe.set(f"key {number}", 1)
        pipe.execute()
    server.stop(immediate=True)
    server.options["key-load-delay"] = "100"  # microseconds for each key
    starting = threading.Thread(target=server.start)
    starting.start()
    refusals = []
    while True:
        store = from_url(server.url)
        try:
            await store.open()
        except StoreUnavailable as problem:
            refusals.append(str(problem))
        else:
            break
    starting.join()
    await store.close()
    assert any("reading its file" in refusal for refusal in refusals), refusals


async def test_no_such_database(server: Redis) -> None:
    """A database number the server does not have is refused with words."""
    with pytest.raises(BadSetting, match="no database of that number"):
        await from_url(server.url.removesuffix("/0") + "/99").open()


async def test_newer_keys_are_refused(own: RedisStore, server: Redis) -> None:
    """Keys of a newer layout are left alone."""
    await command(own, "SET", "{}schema", str(SCHEMA_VERSION + 1))
    with pytest.raises(SchemaMismatch, match="newer mulligan"):
        await from_url(server.url).open()


async def test_older_keys_are_refused(own: RedisStore, server: Redis) -> None:
    """Keys of a layout that scripts can no longer read are left as they are, and it is told how to bring the jobs along."""
    await own.insert([new_job()])
    await command(own, "SET", "{}schema", str(SCHEMA_VERSION - 1))
    before = await keys(own)
    with pytest.raises(SchemaMismatch, match="mulligan copy"):
        await from_url(server.url).open()
    assert await keys(own) == before


async def test_apps_do_not_meet(server: Redis) -> None:
    """Two apps on one server share nothing, and every key of an app lies in its own slot."""
    one, two = from_url(f"{server.url}?app=one"), from_url(f"{server.url}?app=two")
    await one.open()
    await two.open()
    await one.insert([new_job()])
    assert (await claim(two)).jobs == []
    assert len((await claim(one)).jobs) == 1
    assert len(await keys(one)) > 4
    found = await command(one, "KEYS", "*")
    assert all(key.startswith((b"{one}:", b"{two}:")) for key in found)
    await one.close()
    await two.close()


async def test_names_cannot_cross(store: RedisStore) -> None:
    """Queues whose names look like parts of keys, and unique keys that look like another queue's, stay apart."""
    queues = ["a", "a:fresh", "a:fresh:0", "due:a", "1:a", "a:1"]
    jobs = [new_job(queue, unique_key="b:c") for queue in queues] + [new_job("a:b", unique_key="c"), new_job("a", unique_key="fresh:b:c")]
    assert all(answer.created for answer in await store.insert(jobs))
    assert [figures.fresh_ready for figures in (await store.stats()).queues] == [
        2 if queue == "a" else 1 for queue in sorted({*queues, "a:b"})
    ]


async def test_describe_tells_the_facts(store: RedisStore) -> None:
    """The server's version and settings, the sizes, and whether hints come."""
    await store.insert([new_job()])
    facts = await store.describe()
    assert str(facts["server"]).startswith("Redis 6") or "Redis" in str(facts["server"]) or "Valkey" in str(facts["server"])
    assert (facts["schema_version"], facts["jobs"], facts["durability"], facts["losses"]) == (SCHEMA_VERSION, 1, "aof", [])
