from __future__ import annotations

import shutil

import pytest

from mulligan.stores.redis import RedisStore, from_url
from mulligan.stores.redis.losses import Known, Losses
from tests.builders import all_events, claim, new_job
from tests.redis.keys import command
from tests.servers import Redis


async def assert_loss_is_told(store: RedisStore, words: str, caplog: pytest.LogCaptureFixture) -> None:
    """The loss is in the log, in the promise, in the facts and in the event log, once; and the store goes on."""
    [weakness] = (await store.promise()).weaknesses
    assert words in weakness.what
    facts = await store.describe()
    assert isinstance(facts["losses"], list) and len(facts["losses"]) == 1
    assert [event.kind for event in await all_events(store)] == ["STORE_DEGRADED"]
    assert len([record for record in caplog.records if "has lost data" in record.message]) == 1
    await store.insert([new_job()])
    assert len((await claim(store)).jobs) == 1
    assert len((await store.promise()).weaknesses) == 1


async def test_a_flush_is_noticed(own: RedisStore, caplog: pytest.LogCaptureFixture) -> None:
    """FLUSHALL under an open store is noticed at the next call, told to everybody who asks, and forgotten when told to."""
    await own.insert([new_job() for _ in range(3)])
    await command(own, "FLUSHALL")
    assert (await claim(own)).jobs == []
    await assert_loss_is_told(own, "all keys are gone", caplog)
    await own.forget_losses()
    assert (await own.promise()).weaknesses == ()


async def test_a_restart_without_its_file_is_noticed(own: RedisStore, server: Redis, caplog: pytest.LogCaptureFixture) -> None:
    """A server that comes back empty is noticed."""
    await own.insert([new_job() for _ in range(3)])
    server.kill()
    for path in server.folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    server.start()
    assert (await claim(own)).jobs == []
    await assert_loss_is_told(own, "all keys are gone", caplog)


async def test_a_replica_that_lagged_is_noticed(own: RedisStore, caplog: pytest.LogCaptureFixture) -> None:
    """Keys that are older than what was acknowledged, as after a fail-over, are noticed by their beat."""
    await own.insert([new_job()])
    await command(own, "COPY", "{}beat", "{}beat-before")
    for _ in range(3):
        await own.insert([new_job()])
    await claim(own)
    await command(own, "RENAME", "{}beat-before", "{}beat")
    await own.stats()
    [weakness] = (await own.promise()).weaknesses
    assert "writes or more are missing" in weakness.what
    assert len([record for record in caplog.records if "has lost data" in record.message]) == 1


async def test_another_epoch_is_noticed(own: RedisStore, server: Redis, caplog: pytest.LogCaptureFixture) -> None:
    """Keys that another store made after a flush are not taken for the old ones."""
    await own.insert([new_job()])
    await command(own, "FLUSHALL")
    other = from_url(server.url)
    await other.open()
    await other.insert([new_job()])
    await own.stats()
    await other.close()
    [weakness] = (await own.promise()).weaknesses
    assert "another epoch" in weakness.what


async def test_a_reload_is_harmless(own: RedisStore) -> None:
    """DEBUG RELOAD, a clean restart and opening again lose nothing and say nothing."""
    await own.insert([new_job()])
    await command(own, "DEBUG", "RELOAD")
    assert len((await claim(own)).jobs) == 1
    await own.close()
    await own.open()
    assert (await own.promise()).weaknesses == ()


def test_answers_that_overtake_each_other_are_no_loss() -> None:
    """Answers over several connections may come in another order than the server gave them."""
    losses = Losses("here")
    losses.notice(losses.known, b"e", 5, 0)
    known = losses.known
    losses.notice(known, b"e", 7, 0)
    losses.notice(known, b"e", 6, 0)
    assert (losses.known, list(losses.found)) == (Known(b"e", 7), [])
    losses.notice(losses.known, b"e", 6, 0)
    assert len(losses.found) == 1
