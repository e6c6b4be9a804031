"""A side loop of a worker: a step, then the pause it asks for, for ever."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from mulligan.core.errors import StoreError
from mulligan.worker.health import StoreHealth

log = logging.getLogger("mulligan.worker")


async def repeat(step: Callable[[], Awaitable[float]], health: StoreHealth, rng: random.Random, pause_after_error_s: float) -> None:
    """Ends by cancellation only: an error is logged and the loop goes on."""
    while True:
        try:
            pause_s = await step()
        except StoreError as error:
            if not error.retryable:
                log.error("%s", error)
            await health.failed(error)
            continue
        except Exception:
            log.exception("a side loop of the worker failed; it goes on")
            pause_s = pause_after_error_s
        # A little chance keeps the loops of many workers from marching in step.
        await asyncio.sleep(pause_s * rng.uniform(0.9, 1.0))
