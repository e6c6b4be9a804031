"""`--processes N`: a supervisor and N workers, each in a process of its own."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mulligan.cli.exits import OK
from mulligan.cli.health import Health, HealthOptions
from mulligan.cli.places import require_shared
from mulligan.cli.serving import SIGNALS, end_at_once, store_answers
from mulligan.worker.supervisor import Supervisor
from mulligan.worker.supervisor_settings import SupervisorSettings

if TYPE_CHECKING:
    from mulligan.app import Mulligan

log = logging.getLogger("mulligan.supervisor")


async def supervise(
    app: Mulligan, worker_settings: dict[str, Any], settings: SupervisorSettings, command: Sequence[str], health: HealthOptions
) -> int:
    """Runs a supervisor until it is told to stop; the exit code."""
    require_shared(app.store.url)
    worker = app.worker(**worker_settings)  # never started: it checks the settings, as those of the children
    supervisor = Supervisor(worker.equipment, worker.settings, settings, command, [*command, "--concurrency", "1", "--solo"])
    signals = 0

    def on_signal(number: int) -> None:
        nonlocal signals
        signals += 1
        if signals > 3:
            end_at_once(128 + number)
        supervisor.stop()

    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    async with Health(health, app.store, supervisor.stopping, lambda: (supervisor.children_up, supervisor.jobs_held)):
        if not await store_answers(app, supervisor.stopping):
            return OK
        async with app:
            code = await supervisor.run()
    log.info("stopped")
    return 128 + SIGNALS[0] if signals > 2 else code


def child_command(target: str, options: Sequence[str]) -> list[str]:
    """The command of one child: the same one, for a single process."""
    return [sys.executable, "-m", "mulligan", "worker", target, *options]
