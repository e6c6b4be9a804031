from __future__ import annotations

from pathlib import Path

import pytest

from mulligan.cli.bench_figures import answer_of
from mulligan.core.errors import IllegalMove
from tests.cli.commands import ended, started
from tests.cli.conftest import Run, Shop

FIGURES = {"enqueue_per_s", "enqueue_bulk_per_s", "drain_per_s", "pickup_p50_ms", "pickup_p99_ms", "retry_attempts_per_s", "rss_mb"}


def test_bench_measures_every_figure(folder: Path) -> None:
    """One JSON document with all figures, each above zero, from real processes; nothing is left behind."""
    (folder / "tmp").mkdir()
    with started("bench", "--jobs", "200", "--json", folder=folder, TMPDIR=str(folder / "tmp")) as process:
        answer = ended(process)
    assert answer.code == 0, answer.err
    figures = answer.json
    assert figures.keys() >= FIGURES
    assert all(figures[name] > 0 for name in FIGURES)
    assert figures["pickup_p50_ms"] <= figures["pickup_p99_ms"]
    assert (figures["jobs"], figures["durability"]) == (200, "full")
    assert list((folder / "tmp").iterdir()) == []


def test_bench_on_a_named_store(run: Run, shop: Shop) -> None:
    """Its jobs stay there as done, in their own queue; a queue that is not empty is not measured."""
    answer = run("bench", "--jobs", "40", "--store", shop.url)
    assert answer.code == 0, answer.err
    assert "drain by one worker process" in answer.out
    [queue] = run("status", "--json").json["queues"]
    assert queue["region"] == "bench"
    assert queue["done"] == 41 + 40 + 20 + 10
    shop.enqueue("fine", queue="bench")
    busy = run("bench", "--jobs", "40", "--store", shop.url)
    assert busy.code == 2
    assert "where it is empty" in busy.err


def test_bench_beside_another_queue(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many rounds of each, in turns, and the ratio of their medians."""
    monkeypatch.setattr("mulligan.cli.bench.ROUNDS", 2)
    answer = run("bench", "--jobs", "50", "--beside", "huey", "--json")
    assert answer.code == 0, answer.err
    figures = answer.json
    assert [len(rates) for rates in figures["rounds"].values()] == [2, 2]
    assert figures["drain_ratio_huey"] == pytest.approx(figures["drain_per_s"] / figures["huey_drain_per_s"], rel=0.01)


def test_bench_beside_a_queue_that_is_not_there(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what to install, or where it works."""
    monkeypatch.setattr("mulligan.cli.bench_figures.huey_adapter", lambda: Path("nowhere.py"))
    answer = run("bench", "--jobs", "10", "--beside", "huey")
    assert answer.code == 2
    assert "huey" in answer.err


def test_a_measuring_process_that_fails_is_told() -> None:
    """A figure is never made up: what the process said last is the reason."""
    with pytest.raises(IllegalMove, match="ended with 1: ValueError: x"):
        answer_of(1, b"", b"Traceback\n  ...\nValueError: x\n")
    assert answer_of(0, b'ready\n{"a": 1}\n', b"") == {"a": 1}
