from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import redis
from pymongo import MongoClient

from mulligan.cli.bench_figures import answer_of
from mulligan.cli.bench_scratch import Scratch, shown_place
from mulligan.core.errors import IllegalMove
from tests.cli.commands import ended, started
from tests.cli.conftest import Run, Shop
from tests.conftest import BACKENDS, DURABLE, url_of
from tests.servers import server_url

FIGURES = {"enqueue_per_s", "enqueue_bulk_per_s", "drain_per_s", "pickup_p50_ms", "pickup_p99_ms", "retry_attempts_per_s", "rss_mb"}
JOBS = "40"


def schemas(_url: str) -> set[str]:
    """The schemas of the PostgreSQL server."""
    with psycopg.connect(server_url("postgres")) as connection:
        return {str(name) for (name,) in connection.execute("SELECT nspname FROM pg_namespace").fetchall()}


def databases(_url: str) -> set[str]:
    """The databases of the MongoDB server."""
    with MongoClient[dict[str, object]](server_url("mongo")) as client:
        return set(client.list_database_names())


def keys(_url: str) -> set[str]:
    """The keys of the Redis server."""
    with redis.Redis.from_url(server_url("redis")) as client:
        return {key.decode() for key in client.scan_iter(count=1000)}


def files(url: str) -> set[str]:
    """What is in the folder of a SQLite store."""
    return {path.name for path in Path(urlsplit(url).path[1:]).parent.iterdir()}


# Where a measurement could leave something behind.
ALL: dict[str, Callable[[str], set[str]]] = {"sqlite": files, "postgres": schemas, "mongo": databases, "redis": keys}


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> str:
    """What the names of this test's places have in common: others may measure on the same server now."""
    chosen = secrets.token_hex(4)
    monkeypatch.setattr("mulligan.cli.bench_scratch.new_token", lambda: chosen)
    return chosen


def left(backend: str, url: str, token: str) -> list[str]:
    """What a measurement left behind."""
    return [name for name in ALL[backend](url) if token in name or "mulligan-bench" in name]


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
    assert (figures["jobs"], figures["store"], figures["durability"]) == (200, "sqlite", "full")
    assert list((folder / "tmp").iterdir()) == []


@pytest.mark.parametrize("backend", sorted(DURABLE & BACKENDS.keys()))
def test_bench_beside_the_bare_loop_of_each_store(
    backend: str, run: Run, tmp_path: Path, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All figures and the ratio, measured in a place of its own, of which nothing is left."""
    monkeypatch.setattr("mulligan.cli.bench.ROUNDS", 1)
    url = url_of(backend, tmp_path)
    answer = run("bench", "--jobs", JOBS, "--store", url, "--beside", "bare", "--json")
    assert answer.code == 0, answer.err
    figures = answer.json
    assert figures["store"] == backend
    wanted = FIGURES | {"bare_drain_per_s", "bare_insert_per_s", "drain_ratio_bare"}
    assert all(figures[name] > 0 for name in wanted)
    assert figures["drain_ratio_bare"] == pytest.approx(figures["drain_per_s"] / figures["bare_drain_per_s"], rel=0.05)
    assert {side: len(rates) for side, rates in figures["rounds"].items()} == {"mulligan": 1, "bare": 1}
    assert left(backend, url, token) == []


def test_bench_beside_taskiq(run: Run, tmp_path: Path, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Taskiq drains as many on the same server."""
    monkeypatch.setattr("mulligan.cli.bench.ROUNDS", 1)
    url = url_of("redis", tmp_path)
    answer = run("bench", "--jobs", JOBS, "--store", url, "--beside", "taskiq", "--json")
    assert answer.code == 0, answer.err
    assert answer.json["drain_ratio_taskiq"] > 0
    assert left("redis", url, token) == []


def test_bench_beside_a_named_file(run: Run, shop: Shop) -> None:
    """It measures beside the file and does not touch it, whatever waits there, and tells where it was."""
    shop.enqueue("fine", queue="bench")
    before = hashlib.sha256(shop.file.read_bytes()).digest()
    names = {path.name for path in shop.file.parent.iterdir()}
    answer = run("bench", "--jobs", JOBS, "--store", shop.url)
    assert answer.code == 0, answer.err
    assert "drain by one worker process" in answer.out
    assert "beside sqlite:///" in answer.out
    assert hashlib.sha256(shop.file.read_bytes()).digest() == before
    assert {path.name for path in shop.file.parent.iterdir()} == names


def test_bench_in_a_folder_that_is_not_there(run: Run, folder: Path) -> None:
    """A mistyped path is told before anything is measured."""
    answer = run("bench", "--jobs", JOBS, "--store", f"sqlite:///{folder}/nowhere/jobs.db")
    assert answer.code == 4
    assert "does not exist" in answer.err


def test_bench_beside_another_queue(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many rounds of each, in turns, and the ratio of their medians; two can be compared with at once."""
    monkeypatch.setattr("mulligan.cli.bench.ROUNDS", 2)
    answer = run("bench", "--jobs", "50", "--beside", "huey", "--beside", "bare", "--json")
    assert answer.code == 0, answer.err
    figures = answer.json
    assert {side: len(rates) for side, rates in figures["rounds"].items()} == {"mulligan": 2, "huey": 2, "bare": 2}
    assert figures["drain_ratio_huey"] == pytest.approx(figures["drain_per_s"] / figures["huey_drain_per_s"], rel=0.01)


def test_bench_beside_a_queue_that_is_not_there(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what to install, or where it works."""
    wrong_store = run("bench", "--jobs", "10", "--beside", "taskiq")
    assert wrong_store.code == 2
    assert "redis" in wrong_store.err
    monkeypatch.setattr("mulligan.cli.bench_peers.programs", lambda: Path("nowhere"))
    no_checkout = run("bench", "--jobs", "10", "--beside", "huey")
    assert no_checkout.code == 2
    assert "checkout" in no_checkout.err
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    not_installed = run("bench", "--jobs", "10", "--beside", "huey")
    assert not_installed.code == 2
    assert "pip install huey" in not_installed.err


def test_a_measuring_process_that_fails_is_told() -> None:
    """A figure is never made up: what the process said last is the reason."""
    with pytest.raises(IllegalMove, match="ended with 1: ValueError: x"):
        answer_of(1, b"", b"Traceback\n  ...\nValueError: x\n")
    assert answer_of(0, b'ready\n{"a": 1}\n', b"") == {"a": 1}


@pytest.mark.parametrize("backend", sorted(DURABLE & BACKENDS.keys()))
def test_a_measurement_that_fails_leaves_nothing(
    backend: str, run: Run, tmp_path: Path, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its place is removed also when a measuring process ends with an error, which is told."""
    url = url_of(backend, tmp_path)
    seen: list[str] = []

    def failed(*_told: object) -> None:
        seen.extend(left(backend, url, token))
        raise IllegalMove("it ended with an error")

    monkeypatch.setattr("mulligan.cli.bench_figures.answer_of", failed)
    answer = run("bench", "--jobs", "10", "--store", url)
    assert answer.code == 2
    assert "it ended with an error" in answer.err
    assert seen  # it was there then
    assert left(backend, url, token) == []


def test_the_place_of_a_measurement(tmp_path: Path) -> None:
    """Another schema, database or app on the same server with the same login; a driver gets no option of ours."""
    postgres = Scratch("postgresql://u:p@h/db?schema=jobs&sslmode=require&timeout=3", tmp_path, "full")._made("x")
    assert postgres.url == "postgresql://u:p@h/db?sslmode=require&timeout=3&schema=mulligan_x"
    assert postgres.driver_url == "postgresql://u:p@h/db?sslmode=require"
    mongo = Scratch("mongodb://u:p@h1,h2/jobs?replicaSet=r", tmp_path, "full")._made("x")
    assert mongo.driver_url == "mongodb://u:p@h1,h2/mulligan_x?replicaSet=r&authSource=jobs"
    cache = Scratch("rediss://:p@h:6380/2?app=jobs", tmp_path, "full")._made("x")
    assert (cache.url, cache.driver_url) == ("rediss://:p@h:6380/2?app=x", "rediss://:p@h:6380/2")
    assert "u:p" not in shown_place("postgresql://u:p@h/db")
