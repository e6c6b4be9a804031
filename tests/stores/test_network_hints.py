"""Hints over a network: one subscription, many sleepers, and a subscription that breaks."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable

from mulligan.sim.virtual import LoopClock, run_virtual
from mulligan.stores.network.hints import WAIT_MAX_S, Hints
from mulligan.stores.network.store import Spreader


def test_a_hint_wakes_every_sleeper_and_a_broken_subscription_is_made_again() -> None:
    """After each break it subscribes anew, later and later, with some chance in it; once it stands, all sleepers are told."""

    async def main(clock: LoopClock) -> tuple[list[float], list[bool], str]:
        tries: list[float] = []
        start_us = clock.now_us()

        async def subscribe(heard: Callable[[], None]) -> None:
            tries.append((clock.now_us() - start_us) / 1e6)
            if len(tries) < 12:
                raise OSError("cut")
            heard()
            await asyncio.sleep(3_600)

        hints = Hints(subscribe, random.Random(1))
        listeners = [hints.listen() for _ in range(3)]
        waits = [asyncio.create_task(listener.wait(600)) for listener in listeners]
        hints.begin()
        hints.begin()
        await asyncio.sleep(0.05)
        trouble = hints.trouble
        woken = list(await asyncio.gather(*waits))
        assert hints.trouble == ""
        await hints.end()
        assert await listeners[0].wait(1) is False
        return tries, woken, trouble

    tries, woken, trouble = run_virtual(main)
    assert woken == [True] * 3
    assert "cut" in trouble
    pauses = [later - earlier for earlier, later in itertools.pairwise(tries)]
    assert len(tries) == 12
    assert max(pauses) <= WAIT_MAX_S
    assert len(set(pauses)) == len(pauses)
    assert sum(pauses[-4:]) > sum(pauses[:4])


def test_hints_out_are_sent_one_at_a_time() -> None:
    """Any number of wishes while one is on its way become one more; a failure is swallowed and the next wish is sent again."""

    async def main(_: LoopClock) -> int:
        sent = 0

        async def send() -> None:
            nonlocal sent
            sent += 1
            await asyncio.sleep(1)
            if sent == 3:
                raise OSError("cut")

        spreader = Spreader(send)
        for _ in range(100):
            spreader.ask()
        await asyncio.sleep(0.5)
        for _ in range(100):
            spreader.ask()
        await asyncio.sleep(10)
        assert sent == 2
        spreader.ask()
        await asyncio.sleep(10)
        spreader.ask()
        await asyncio.sleep(10)
        return sent

    assert run_virtual(main) == 4
