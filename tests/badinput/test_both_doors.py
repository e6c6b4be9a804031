"""The same inputs at the command line and in the library, on every store: the same answer, and nothing stored or everything whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mulligan import Mulligan, MulliganError
from tests.badinput.doors import ODD_ARGUMENTS, ODD_KEYS, ODD_TIMES, REFUSED, Refused
from tests.cli.commands import run_command
from tests.conftest import BACKENDS, DURABLE, url_of

USAGE = 2


@pytest.fixture(params=[name for name in BACKENDS if name in DURABLE])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store that both doors lead to."""
    monkeypatch.chdir(tmp_path)
    return url_of(request.param, tmp_path)


async def library_answer(url: str, case: Refused) -> str:
    """What the library says to it."""
    app = Mulligan(url)
    app.declare("free")
    call: dict[str, Any] = {"task": "free", **case.call}
    task = call.pop("task")
    try:
        if task != "free":
            app.declare(task)
        await app.enqueue(task, **call)
    except MulliganError as problem:
        return str(problem)
    finally:
        await app.close()
    return "it was taken"


def command_answer(url: str, case: Refused) -> str:
    """What the command line says to it."""
    answer = run_command("enqueue", *case.typed, "--store", url)
    assert answer.code == USAGE, f"{case.name}: {answer}"[:500]
    assert answer.out == ""
    assert "\x1b" not in answer.err
    assert len(answer.err) < 2_000
    return answer.err


def test_both_doors_refuse_alike(url: str) -> None:
    """Each bad input is refused at both doors in the same words, before anything is stored."""
    import asyncio

    assert len(REFUSED) >= 50
    for case in REFUSED:
        for answer in (command_answer(url, case), asyncio.run(library_answer(url, case))):
            assert case.words in answer, f"{case.name}: {answer[:500]}"
    run_command("migrate", "--store", url)
    assert run_command("jobs", "--store", url, "--json").json == []


def test_odd_inputs_come_back_whole_through_both_doors(url: str) -> None:
    """Keys with dollars and dots, NUL, every script, the edges of numbers and times: stored and read as they were given."""
    import asyncio

    async def enqueue_all() -> list[str]:
        async with Mulligan(url) as app:
            app.declare("free")
            ids = [(await app.enqueue("free", args=[value])).id for value in ODD_ARGUMENTS]
            ids += [(await app.enqueue("free", unique_key=key, tags=[key[:100]])).id for key in ODD_KEYS]
            return ids + [(await app.enqueue("free", eta=moment)).id for moment in ODD_TIMES]

    async def read(ids: list[str]) -> list[Any]:
        async with Mulligan(url) as app:
            jobs = [await app.get(job_id) for job_id in ids]
            return [[job.args for job in jobs], [job.unique_key for job in jobs], [job.tags for job in jobs], [job.run_at for job in jobs]]

    by_library = asyncio.run(enqueue_all())
    typed = [["free", f"[{json.dumps(value)}]"] for value in ODD_ARGUMENTS]
    typed += [["free", f"--unique-key={key}", f"--tag={key[:100]}", "--queue=other"] for key in ODD_KEYS]
    typed += [["free", f"--eta={moment.isoformat()}"] for moment in ODD_TIMES]
    by_command = [run_command("enqueue", *words, "--store", url, "--json").json["id"] for words in typed]
    odd = len(ODD_ARGUMENTS)
    for ids, wrapped in ((by_library, False), (by_command, True)):
        arguments, keys, tags, times = asyncio.run(read(ids))
        assert arguments[:odd] == [[[value]] if wrapped else [value] for value in ODD_ARGUMENTS]
        assert keys[odd : odd + len(ODD_KEYS)] == ODD_KEYS
        assert tags[odd : odd + len(ODD_KEYS)] == [(key[:100],) for key in ODD_KEYS]
        assert times[-len(ODD_TIMES) :] == ODD_TIMES
    shown = run_command("show", by_command[0], "--store", url, "--json").json
    assert shown["args"] == [[ODD_ARGUMENTS[0]]]
    assert len(run_command("jobs", "--tag", ODD_KEYS[3], "--store", url, "--json").json) == 2
