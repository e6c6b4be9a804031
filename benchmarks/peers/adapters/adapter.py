"""What the adapters of Python peers share: the command line, and the conversation with the runner in JSON lines. Standard library only.

    adapter.py prepare                                makes tables and the like
    adapter.py enqueue --kind K --count N --how HOW   {"seconds": s, "timed": n}; with --gap-ms G or --told 1 {"sent_ns": [...]}
    adapter.py worker                                 {"ready": true}, then works until SIGTERM; --processes N only for mulligan
    adapter.py left                                   for each line it reads: {"left": n}, the jobs the store does not hold as finished

The address of the store is in BENCH_URL, the file for the records of the jobs in BENCH_RECORDS, the numbers of its settings in
BENCH_TUNED.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from crowd import Crowd

BULK = 1_000  # jobs handed over at once
AT_ONCE = 100  # enqueues under way at once, where a queue is filled without a bulk call


class Sender(Protocol):
    """Enqueues. Each method may be a coroutine. `bulk` is absent where the peer has no such call."""

    def one(self, kind: str, number: int) -> Any:
        """One job."""


class Peer(Protocol):
    """One peer, in its own environment. Each method may be a coroutine."""

    def prepare(self, url: str) -> Any:
        """Makes what the peer needs in an empty store."""

    def sender(self, url: str) -> Any:
        """Something that enqueues."""

    def left(self, url: str) -> Any:
        """A function, perhaps a coroutine function, that counts the jobs the store does not hold as finished."""

    def work(self, url: str) -> Any:
        """Works until SIGTERM; calls `ready` once it takes jobs."""


def variant() -> str:
    """Which of several ways to run this peer was asked for."""
    return asked_for("--variant")


def asked_for(option: str) -> str:
    """The value of an option of the command line that only one adapter knows, or that it wants to know early; empty without it."""
    return sys.argv[sys.argv.index(option) + 1] if option in sys.argv else ""


def tuned(name: str) -> int:
    """A number of this peer's settings, as the roster has it or a sweep tries it."""
    return int(json.loads(os.environ["BENCH_TUNED"])[name])


def say(**answer: Any) -> None:
    """One line for the runner."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def ready() -> None:
    """Tells the runner that jobs are taken from now on."""
    say(ready=True)


async def settled(value: Any) -> Any:
    """The value, or what it comes to."""
    return await value if inspect.isawaitable(value) else value


def stop_event() -> asyncio.Event:
    """Set by SIGTERM; for workers that run in the event loop of the adapter."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    return stop


def end_on_sigterm() -> None:
    """SIGTERM ends the process at once; for workers of threads, which would take long to stop and have nothing left to do."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))


async def _enqueue(peer: Peer, url: str, asked: argparse.Namespace) -> dict[str, Any]:
    sender = await settled(peer.sender(url))
    numbers = range(asked.first, asked.first + asked.count)
    if asked.gap_ms:
        return {"sent_ns": await _spaced(sender, asked.kind, numbers, asked.gap_ms / 1e3)}
    if asked.how == "crowd":
        crowd = Crowd(sender, asked.kind, numbers, asked.per_s)
        told = {"seconds": await crowd.run(), "timed": asked.count - crowd.callers, "callers": crowd.callers}
        return {**told, "sent_ns": crowd.sent_ns} if asked.told else told
    if asked.how == "one" and not inspect.iscoroutinefunction(sender.one):
        return await asyncio.to_thread(_one_by_one, sender, asked.kind, numbers)
    begin = time.perf_counter()
    parts = _parts(sender, asked.how, numbers)
    for index, part in enumerate(parts):
        if index == 1:  # the first call opens connections and prepares statements; it is not timed
            begin = time.perf_counter()
        if asked.how == "one":
            await settled(sender.one(asked.kind, part[0]))
        elif hasattr(sender, "bulk"):
            await settled(sender.bulk(asked.kind, part))
        else:
            await _filled(sender, asked.kind, part)
    return {"seconds": time.perf_counter() - begin, "timed": asked.count - len(parts[0])}


def _one_by_one(sender: Any, kind: str, numbers: Sequence[int]) -> dict[str, Any]:
    """The same for a sender that blocks: a thread without an event loop is where such a call is made."""
    sender.one(kind, numbers[0])
    begin = time.perf_counter()
    for number in numbers[1:]:
        sender.one(kind, number)
    return {"seconds": time.perf_counter() - begin, "timed": len(numbers) - 1}


def _parts(sender: Any, how: str, numbers: Sequence[int]) -> list[Sequence[int]]:
    size = 1 if how == "one" else BULK if hasattr(sender, "bulk") else AT_ONCE
    return [numbers[first : first + size] for first in range(0, len(numbers), size)]


async def _filled(sender: Any, kind: str, numbers: Sequence[int]) -> None:
    """Enqueues one by one, but not one after the other if the peer can do better."""
    begun = [sender.one(kind, number) for number in numbers]
    if begun and inspect.isawaitable(begun[0]):
        await asyncio.gather(*begun)


async def _spaced(sender: Any, kind: str, numbers: Sequence[int], gap_s: float) -> list[int]:
    """Enqueues with pauses in between that no polling can fall into step with; when each was begun."""
    chance = random.Random(1)
    sent = []
    for number in numbers:
        await asyncio.sleep(gap_s * chance.uniform(0.5, 1.5))
        sent.append(time.monotonic_ns())
        await settled(sender.one(kind, number))
    return sent


async def _tell_left(peer: Peer, url: str) -> None:
    count: Callable[[], int | Awaitable[int]] = await settled(peer.left(url))
    say(ready=True)
    while await asyncio.to_thread(sys.stdin.readline):
        say(left=await settled(count()))


async def _prepare(peer: Peer, url: str) -> None:
    await settled(peer.prepare(url))
    say(prepared=True)


def main(peer: Peer) -> None:
    """Does what the command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["prepare", "enqueue", "worker", "left"])
    parser.add_argument("--variant", default="", help="which of several ways to run this peer; looked up by its adapter")
    parser.add_argument("--kind", choices=["noop", "storm", "probe", "mortal", "burn"], default="noop")
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first job")
    parser.add_argument("--how", choices=["one", "bulk", "crowd"], default="one")
    parser.add_argument("--gap-ms", type=float, default=0.0)
    parser.add_argument("--per-s", type=float, default=0.0, help="of a crowd: how many in a second; as many as it can without it")
    parser.add_argument("--told", type=int, default=0, help="of a crowd: whether to tell when each job was sent")
    parser.add_argument("--processes", type=int, default=0)
    asked = parser.parse_args()
    url = os.environ["BENCH_URL"]
    logging.disable(logging.CRITICAL)  # a line for each job would be a part of the figure
    if asked.role == "worker":
        working = peer.work(url)
        if inspect.isawaitable(working):
            _run(working)
    elif asked.role == "enqueue":
        say(**_run(_enqueue(peer, url, asked)))
    elif asked.role == "left":
        _run(_tell_left(peer, url))
    else:
        _run(_prepare(peer, url))


def _run(coroutine: Any) -> Any:
    """With uvloop where the environment of the peer has it."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(coroutine)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(coroutine)
