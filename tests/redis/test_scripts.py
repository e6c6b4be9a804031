from __future__ import annotations

from mulligan.stores.redis import RedisStore
from tests.builders import claim, done, get, new_job
from tests.redis.keys import command
from tests.servers import Redis


async def test_forgotten_scripts_are_told_again(own: RedisStore) -> None:
    """After SCRIPT FLUSH in the middle of work, nothing is lost and nobody notices."""
    jobs = [new_job() for _ in range(5)]
    await own.insert(jobs)
    await command(own, "SCRIPT", "FLUSH")
    claimed = (await claim(own)).jobs
    await command(own, "SCRIPT", "FLUSH")
    assert all(verdict.applied for verdict in await own.settle([done(job) for job in claimed]))
    assert [(await get(own, job.id)).status for job in jobs] == ["done"] * 5


async def test_a_killed_server_comes_back_with_everything(own: RedisStore, server: Redis) -> None:
    """After SIGKILL and a restart the append-only file has every acknowledged write, and the store goes on without being opened again."""
    jobs = [new_job() for _ in range(200)]
    await own.insert(jobs)
    held = (await claim(own, total=50)).jobs
    server.kill()
    server.start()
    assert all(verdict.applied for verdict in await own.settle([done(job) for job in held]))
    rest = (await claim(own)).jobs
    assert {job.id for job in held} | {job.id for job in rest} == {job.id for job in jobs}
    assert (await own.promise()).weaknesses == ()
