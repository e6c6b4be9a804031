"""The bare batch loop on Redis: redis-py with hiredis, one Lua call per batch. `bare_redis.py APP JOBS`

What never changes of a job is one text, so that a claim returns few values; what changes has fields of its own. The server's own
settings say how durable it is: they are the same for both sides. While a batch is settled, the next is claimed.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from bare_rows import BATCH, LEASE_US, OWNER, batches, check, new_row, tell
from redis.asyncio import Redis

MUTABLE = ("status", "fence", "attempts", "lease_owner", "lease_expires_at_us", "updated_at_us", "finished_at_us", "settle_id")

INSERT = """
local due, job = KEYS[1], KEYS[2]
local line = {}
for i = 2, #ARGV, 2 do
  redis.call('HSET', job .. ARGV[i], 'status', 'pending', 'fence', 0, 'attempts', 0, 'body', ARGV[i + 1])
  line[#line + 1] = ARGV[1]
  line[#line + 1] = ARGV[i]
end
redis.call('ZADD', due, unpack(line))
"""
CLAIM = """
local due, leases, job = KEYS[1], KEYS[2], KEYS[3]
local now, lease_end = ARGV[1], ARGV[2]
local ids = redis.call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, ARGV[4])
if #ids == 0 then return {} end
local answer, held = {}, {}
for i, id in ipairs(ids) do
  local key = job .. id
  local fence = redis.call('HINCRBY', key, 'fence', 1)
  redis.call('HINCRBY', key, 'attempts', 1)
  redis.call('HSET', key, 'status', 'processing', 'lease_owner', ARGV[3], 'lease_expires_at_us', lease_end, 'updated_at_us', now)
  held[#held + 1] = lease_end
  held[#held + 1] = id
  answer[#answer + 1] = id
  answer[#answer + 1] = fence
  answer[#answer + 1] = redis.call('HGET', key, 'body')
end
redis.call('ZREM', due, unpack(ids))
redis.call('ZADD', leases, unpack(held))
return answer
"""
SETTLE = """
local leases, job = KEYS[1], KEYS[2]
local now = ARGV[1]
local done = {}
for i = 2, #ARGV, 3 do
  local id = ARGV[i]
  local key = job .. id
  local state = redis.call('HMGET', key, 'status', 'fence')
  if state[1] == 'processing' and state[2] == ARGV[i + 1] then
    redis.call('HDEL', key, 'lease_owner', 'lease_expires_at_us')
    redis.call('HSET', key, 'status', 'done', 'finished_at_us', now, 'updated_at_us', now, 'settle_id', ARGV[i + 2], 'result_json', 'null')
    done[#done + 1] = id
  end
end
if #done > 0 then redis.call('ZREM', leases, unpack(done)) end
return #done
"""


class Loop:
    """The scripts and keys of one round."""

    def __init__(self, client: Redis, app: str) -> None:
        self._due, self._leases, self._job = f"{{{app}}}:bare:due", f"{{{app}}}:bare:leases", f"{{{app}}}:bare:job:"
        self._insert, self._claim, self._settle = (client.register_script(text) for text in (INSERT, CLAIM, SETTLE))

    async def insert(self, jobs: int) -> float:
        """Stores the jobs in batches; the seconds it took."""
        start = time.perf_counter()
        for batch in batches(jobs):
            now_us = time.time_ns() // 1_000
            arguments: list[Any] = [now_us]
            for _ in batch:
                row = new_row(now_us)
                job_id = row["id"]
                arguments += (job_id, json.dumps({name: value for name, value in row.items() if name not in MUTABLE}))
            await self._insert(keys=[self._due, self._job], args=arguments)
        return time.perf_counter() - start

    async def drain(self) -> int:
        """Claims and settles until nothing is due; how many jobs were settled."""
        settled = number = 0
        settling: asyncio.Task[int] | None = None
        while True:
            number += 1
            now_us = time.time_ns() // 1_000
            rows = await self._claim(keys=[self._due, self._leases, self._job], args=[now_us, now_us + LEASE_US, OWNER, BATCH])
            if settling is not None:
                settled += await settling
            if not rows:
                return settled
            settling = asyncio.create_task(self.settle(rows, number))

    async def settle(self, rows: list[Any], number: int) -> int:
        """Writes the outcomes of a batch; how many were accepted."""
        arguments: list[Any] = [time.time_ns() // 1_000]
        for place in range(0, len(rows), 3):
            arguments += (rows[place], rows[place + 1], f"{OWNER}#{number}.{place}")
        settled: int = await self._settle(keys=[self._leases, self._job], args=arguments)
        return settled


async def run(url: str, app: str, jobs: int) -> dict[str, float]:
    """One round on keys of its own."""
    async with Redis.from_url(url) as client:
        loop = Loop(client, app)
        insert_s = await loop.insert(jobs)
        start = time.perf_counter()
        settled = await loop.drain()
        seconds = time.perf_counter() - start
    check(settled, jobs)
    return {"insert_s": insert_s, "seconds": seconds}


if __name__ == "__main__":
    tell(lambda url, app, jobs: asyncio.run(run(url, app, jobs)))
