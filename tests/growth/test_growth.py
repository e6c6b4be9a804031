"""Growth and bloat in short, and that what is shown of them is what was found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
from benchmarks.growth.bloat import PARTS, _old_transaction
from benchmarks.growth.calls import CALLS
from benchmarks.growth.kinds import KINDS, RARE, fill
from benchmarks.growth.measuring import sizes_of
from benchmarks.growth.page import PAGE, markdown, publish
from benchmarks.growth.report import as_markdown, as_text, joined, targets
from benchmarks.growth.sites import STORES, Sites

from mulligan.stores import open_store
from tests.builders import new_job
from tests.growth.command import found_by

FOUND = {
    "grow": ["done"],
    "stores": {
        "redis": {
            "times_s": {"claim": {"1000": [0.001, 0.002, 0.003], "10000": [0.003]}, "settle": {"1000": [0.002], "10000": [0.01]}},
            "bytes_per_job": {"1000": 700.2, "10000": 710.0},
            "failed": {"10000": {"settle": "no answer"}},
        }
    },
}


def run(file: Path, *options: str) -> dict[str, Any]:
    """A short run; what it found."""
    return found_by("growth", file, *options)


@pytest.mark.timeout(150)
@pytest.mark.parametrize("store", STORES)
def test_every_call_is_measured_at_every_size(store: str, tmp_path: Path) -> None:
    """Two sizes, two rounds; every call answers what it should, and a job takes up some room."""
    result = run(tmp_path / "found.json", "--store", store, "--sizes", "400,800", "--rounds", "2")
    found = result["stores"][store]
    assert set(found["times_s"]) == set(CALLS)
    assert found["failed"] == {}
    assert all(len(found["times_s"][name][size]) == 2 for name in CALLS for size in ("400", "800"))
    assert all(size > 100 for size in found["bytes_per_job"].values())


@pytest.mark.timeout(150)
def test_bloat_is_sampled_in_tenths(tmp_path: Path) -> None:
    """Ten samples of each stream; one more of PostgreSQL when the old transaction has ended and the table was vacuumed."""
    result = run(tmp_path / "found.json", "--bloat", "--jobs", "10000")
    assert {name: len(samples) for name, samples in result["bloat"].items()} == {
        "postgres": PARTS + 1,
        "postgres, an old transaction open": PARTS + 1,
        "sqlite": PARTS,
    }
    assert all(one["drained_per_s"] > 0 for samples in result["bloat"].values() for one in samples)
    assert "| 10,000 |" in as_markdown(result)


async def test_the_old_transaction_keeps_dead_rows() -> None:
    """While it is open a vacuum cannot remove what was deleted; afterwards it can."""
    with Sites() as sites:
        server = sites.server("postgres")
        assert server is not None
        store = open_store(server.url)
        await store.open()
        await store.insert([new_job() for _ in range(100)])
        await store.close()
        with psycopg.connect(server.url, autocommit=True) as connection:

            def rows_left() -> int:
                """How many rows the table's file still holds, as far as a vacuum tells."""
                said: list[str] = []
                connection.add_notice_handler(lambda notice: said.append(notice.message_primary or ""))
                connection.execute("VACUUM (VERBOSE) mulligan.jobs")
                [line] = [line for text in said for line in text.splitlines() if line.startswith("tuples:") and "remain" in line][:1]
                return int(line.split("removed, ")[1].split(" remain")[0])

            async with _old_transaction(server.url):
                connection.execute("DELETE FROM mulligan.jobs")
                assert rows_left() == 100
            assert rows_left() == 0


async def test_a_fill_is_what_it_says() -> None:
    """So many of each kind, as the store counts them itself; one of each is rare."""
    store = open_store("memory://")
    await store.open()
    noted = await fill(store, sizes_of(50, 20, ["done", "retry"]))
    figures = {queue.queue: queue for queue in (await store.stats()).queues}
    rare, usual = figures[RARE], figures["q"]
    assert (usual.fresh_ready, usual.fresh_later, usual.retry_later, usual.processing) == (19, 19, 49, 19)
    assert (usual.done, usual.failed, usual.cancelled, usual.stuck) == (49, 19, 19, 0)
    assert (rare.done, rare.failed, rare.retry_later) == (1, 1, 1)
    assert len(noted) == 5 * 20 + 2 * 50
    assert None not in await store.get(noted)
    assert noted == sorted(noted)
    await store.close()


def test_all_kinds_grow_unless_told_otherwise() -> None:
    """Those that shall not stay at the smallest size."""
    assert sizes_of(100, 10, list(KINDS)) == dict.fromkeys(KINDS, 100)
    assert sizes_of(100, 10, ["done"]) == {**dict.fromkeys(KINDS, 10), "done": 100}


def test_tables_show_medians_and_ratios() -> None:
    """A median of 2 ms at the smallest size and 3 at the next is 1.5 times as much; a call without an answer is marked."""
    lines = as_text(FOUND).splitlines()
    assert lines[2].split() == ["claim", "2", "3", "1.50x"]
    assert lines[3].split() == ["settle", "2", "10!", "5.00x"]
    assert "| redis | 700 | 710 |" in as_markdown(FOUND)


def test_runs_of_other_stores_stand_in_one_table() -> None:
    """Each store keeps what its run found; the same store twice, or another way of filling, has no place in one table."""
    other = {**FOUND, "stores": {"sqlite": FOUND["stores"]["redis"]}}
    text = as_markdown(joined([FOUND, other]))
    assert "| redis | 700 | 710 |" in text and "| sqlite | 700 | 710 |" in text
    with pytest.raises(ValueError, match="of one store"):
        joined([FOUND, FOUND])
    with pytest.raises(ValueError, match="other sizes or other jobs"):
        joined([FOUND, {**other, "grow": ["failed"]}])


def test_targets_can_be_missed() -> None:
    """Claim grew by half, settle five times."""
    claim, settle = targets(FOUND)
    assert claim.endswith("1.50x, at most 2x: reached")
    assert settle.endswith("5.00x, at most 2x: MISSED")


def test_results_are_put_between_their_markers(tmp_path: Path) -> None:
    """What stood there is replaced, what stands around stays; a page without such a place is an error."""
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- growth:begin -->\nold\n<!-- growth:end -->\nafter\n", "utf-8")
    for _ in range(2):
        publish("growth", markdown(["a", "b"], [["1", "\\2"]]), page)
    assert page.read_text("utf-8") == (
        "before\n<!-- growth:begin -->\n| a | b |\n| --- | ---: |\n| 1 | \\2 |\n<!-- growth:end -->\nafter\n"
    )
    with pytest.raises(ValueError, match="no place for bloat"):
        publish("bloat", "text", page)


def test_the_page_has_a_place_for_everything() -> None:
    """Each marker stands in the documentation exactly once."""
    text = PAGE.read_text("utf-8")
    for name in ("growth", "bloat", "claimers"):
        assert text.count(f"<!-- {name}:begin -->\n") == text.count(f"<!-- {name}:end -->") == 1
