"""A worker claims nothing before it has heard what operators and breakers say."""

from __future__ import annotations

from pathlib import Path

from mulligan import Mulligan
from tests.faults import FaultyStore
from tests.seeds.scenes import change_store
from tests.virtual import Stage, play


def test_a_worker_whose_first_look_fails_claims_nothing_before_the_next(backend: str, tmp_path: Path) -> None:
    """The notes cannot be read three times while claims would succeed; the open breaker is kept all the same, and other jobs run later."""

    async def scene(stage: Stage) -> None:
        app: Mulligan = stage.app
        ran: list[str] = []

        @app.task(depends_on="bank")
        async def pay() -> None:
            ran.append("pay")

        @app.task
        async def mail() -> None:
            ran.append("mail")

        await app.open_breaker("bank")
        held, free = await pay.enqueue(), await mail.enqueue()
        store = FaultyStore(app.store)
        store.fail("notes", times=3)
        change_store(app, store)
        async with stage.worker():
            await free.result(timeout=60)
            assert store.calls["notes"] > 3
        assert ran == ["mail"]
        assert (await held.job()).attempts == 0

    play(backend, tmp_path, scene)
