"""Start-up and shutdown hooks: functions, async or not, that run once per worker process."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

Hook = Callable[[], Awaitable[None]]


def as_hook(function: Callable[..., Any]) -> Hook:
    """The function as an awaitable call."""

    async def hook() -> None:
        made = function()
        if inspect.isawaitable(made):
            await made

    return hook
