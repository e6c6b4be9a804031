"""Taskiq on Redis, with its list broker or its stream broker: one process, uvloop, parameters not parsed, many tasks at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import adapter
import jobs
from redis.asyncio import Redis
from taskiq import Context, SimpleRetryMiddleware, TaskiqDepends
from taskiq.receiver import Receiver
from taskiq_redis import ListQueueBroker, RedisStreamBroker

QUEUE = "taskiq"  # of the list, the stream and its group
MAX_ASYNC_TASKS = adapter.tuned("tasks")
CONNECTIONS = 200


def make_broker(url: str) -> tuple[Any, dict[str, Any]]:
    """The broker and its four tasks."""
    made = RedisStreamBroker if adapter.variant() == "stream" else ListQueueBroker
    broker: Any = made(url, queue_name=QUEUE, max_connection_pool_size=CONNECTIONS)
    broker = broker.with_middlewares(SimpleRetryMiddleware(default_retry_count=jobs.ATTEMPTS))

    @broker.task(task_name="noop")  # type: ignore[untyped-decorator]
    async def noop(number: int) -> None:
        jobs.noop(number)

    @broker.task(task_name="storm", retry_on_error=True)  # type: ignore[untyped-decorator]
    async def storm(number: int, context: Annotated[Context, TaskiqDepends()]) -> None:
        jobs.storm(number, int(context.message.labels.get("_retries", 0)) + 1)

    @broker.task(task_name="probe")  # type: ignore[untyped-decorator]
    async def probe(number: int) -> None:
        jobs.probe(number)

    @broker.task(task_name="mortal")  # type: ignore[untyped-decorator]
    async def mortal(number: int) -> None:
        await jobs.mortal_async(number)

    return broker, {"noop": noop, "storm": storm, "probe": probe, "mortal": mortal}


class Sender:
    """Enqueues. There is no bulk call."""

    def __init__(self, tasks: dict[str, Any]) -> None:
        self._tasks = tasks

    async def one(self, kind: str, number: int) -> None:
        """One job."""
        await self._tasks[kind].kiq(number)


class TaskiqPeer:
    """The adapter."""

    async def prepare(self, url: str) -> None:
        """The group of the stream, which would not see what was sent before it was made."""
        broker, _ = make_broker(url)
        await broker.startup()
        await broker.shutdown()

    async def sender(self, url: str) -> Sender:
        """Enqueues."""
        broker, tasks = make_broker(url)
        await broker.startup()
        return Sender(tasks)

    async def left(self, url: str) -> Callable[[], Awaitable[int]]:
        """Of the list what waits: what runs has left it already. Of the stream also what is not acknowledged."""
        client: Any = Redis.from_url(url)

        async def in_list() -> int:
            return int(await client.llen(QUEUE))

        async def in_stream() -> int:
            (group,) = await client.xinfo_groups(QUEUE)
            behind = await client.xrange(QUEUE, min=b"(" + group["last-delivered-id"])
            return int(group["pending"]) + len(behind)

        return in_stream if adapter.variant() == "stream" else in_list

    async def work(self, url: str) -> None:
        """Its receiver, as its command line runs it."""
        stop = adapter.stop_event()
        broker, _ = make_broker(url)
        broker.is_worker_process = True
        await broker.startup()
        receiver = Receiver(broker, run_startup=False, validate_params=False, max_async_tasks=MAX_ASYNC_TASKS)
        listening = asyncio.create_task(receiver.listen(stop))
        adapter.ready()
        await listening


if __name__ == "__main__":
    adapter.main(TaskiqPeer())
