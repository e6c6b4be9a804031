"""What simulated handlers do: each execution of each job draws its own fate from the seed, so that a replay does the same."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

from mulligan.core.errors import Cancel, Fail, Retry, Snooze
from mulligan.sim.account import Account, Ending
from mulligan.sim.process import current
from mulligan.worker.context import Context

if TYPE_CHECKING:
    from mulligan.sim.world import World

PATIENT_S = 60.0


def too_deadly(account: Account) -> str:
    """L9: a job may take down so many processes, and then it is over."""
    limit = account.numbers.max_crashes
    return f"it has killed {account.deaths} processes, and {limit} are the end" if account.deaths > limit else ""


class OddError(BaseException):
    """An error that no `except Exception` catches."""


class Handlers:
    """The one task of a world."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def work(self, ctx: Context, number: int, temper: str) -> Any:
        """One execution. Tells the watch when it begins and how it ends, and nothing in between is believed."""
        world, process = self._world, current()
        assert process is not None
        account = world.watch.starts(ctx.job, process)
        fence = ctx.job.fence
        rng = Random(f"{world.plan.setup.seed} {number} {fence}")
        try:
            await self._spend(rng, temper, account)
        except asyncio.CancelledError:
            if temper != "stubborn":
                world.watch.ends(account, fence, Ending("told"), process, obeys=True)
                raise
            await asyncio.sleep(rng.random() * 0.2)  # it does not obey
        value, error, ending = self._outcome(rng, temper, number)
        world.watch.ends(account, fence, ending, process, obeys=temper != "stubborn")
        if error is not None:
            raise error
        return value

    async def _spend(self, rng: Random, temper: str, account: Account) -> None:
        world, process = self._world, current()
        assert process is not None
        lease_s = world.plan.lease_s
        if temper == "poison" and rng.random() < 0.7:
            await asyncio.sleep(rng.random() * 0.1)
            account.deaths += 1
            world.faults["poison"] += 1
            world.crash(process)
            world.watch.check("L9", too_deadly(account), account)
            world.nemesis.replace()
            await self._world.loop.create_future()
        elif temper == "block" and rng.random() < 0.5:
            world.faults["block"] += 1
            world.pause(process, lease_s * rng.uniform(0.2, 2.0))
            await asyncio.sleep(0)
        elif temper in ("slow", "stubborn"):
            await asyncio.sleep(lease_s * rng.uniform(0.2, 1.7))
        elif temper == "patient":
            await asyncio.sleep(PATIENT_S)
        elif rng.random() < 0.7:
            await asyncio.sleep(rng.random() * 0.3)

    def _outcome(self, rng: Random, temper: str, number: int) -> tuple[Any, BaseException | None, Ending]:
        """What it returns or raises, and how that is told."""
        drawn = rng.random()
        failing = {"good": 0.1, "flaky": 0.5, "hopeless": 1.0, "slow": 0.2, "stubborn": 0.3, "poison": 0.3, "block": 0.2}.get(temper, 0.0)
        if temper == "sleepy" and drawn < 0.6:
            seconds = round(rng.random() * 1.5, 3)
            return None, Snooze(seconds), Ending("snooze", seconds)
        if temper == "odd":
            if drawn < 0.2:
                return object(), None, Ending("bad result")
            if drawn < 0.4:
                return None, OddError("odd"), Ending("error")
            if drawn < 0.6:
                return None, Cancel("not needed"), Ending("cancel")
            if drawn < 0.8:
                return None, asyncio.CancelledError(), Ending("error")
        if drawn < failing:
            kind = rng.random()
            if kind < 0.15:
                return None, Fail("no use"), Ending("fail")
            if kind < 0.4:
                after = rng.choice((0.0, 0.5, 10.0))
                return None, Retry("again", after=after or None), Ending("retry", after)
            return None, ValueError("simulated"), Ending("error")
        if drawn < 0.5 + failing / 2:
            return None, None, Ending("ok")
        return number, None, Ending("ok", 0.0, str(number))
