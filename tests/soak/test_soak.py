"""The soak in short, and that its judgement can fail."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.soak.growth import BOUNDS, growth_of
from benchmarks.soak.sizes import bytes_of

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("store", ["sqlite", "postgres", "mongo", "redis"])
def test_a_short_soak_comes_to_a_steady_size(store: str) -> None:
    """A worker under a steady load with a short retention: jobs pass through, and nothing piles up."""
    settings = ["--for", "8", "--every", "0.4", "--keep", "1", "--rate", "100", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.soak", "--store", store, *settings],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    result = json.loads(done.stdout)
    assert result["enqueued"] >= 100
    rows = [sample["rows"] for sample in result["samples"]]
    assert 0 < rows[-1] < result["enqueued"], "retention has removed nothing, so the run shows nothing"
    assert {"rss_mb", "rows", "store"} <= {one["name"] for one in result["growth"]}


def test_a_leak_is_seen() -> None:
    """A megabyte more in each sample, rows that are never removed, a file that only grows."""
    assert not growth_of("rss_mb", [40 + step for step in range(100)]).is_fine
    assert not growth_of("rows", [step * 100 for step in range(100)]).is_fine
    assert not growth_of("store", [step * 1_000_000 for step in range(100)]).is_fine


def test_a_steady_size_is_fine() -> None:
    """Growth at the beginning is how a process warms up; later, noise is no growth."""
    assert growth_of("rss_mb", [min(60, 30 + step) + step % 2 for step in range(100)]).is_fine
    assert growth_of("rows", [min(2_000, step * 100) + step % 7 for step in range(100)]).is_fine
    assert all(growth_of(name, [1_000.0] * 10).is_fine for name in BOUNDS)


@pytest.mark.parametrize(
    ("samples", "is_fine"),
    [
        ([63_999_999.0] * 10, True),
        ([64_000_000.0] * 10, False),  # steady, and too large all the time
        ([40_000_000.0] * 5 + [70_000_000.0] * 5, False),  # less than twice its steady size and 64 MB
        ([70_000_000.0] + [1_000.0] * 9, False),  # once is enough
    ],
)
def test_a_log_that_is_too_large_is_seen(samples: list[float], is_fine: bool) -> None:
    """SQLite's write-ahead log has a limit, whatever its size was before."""
    assert growth_of("wal", samples).is_fine is is_fine


async def test_the_size_of_a_file_is_read(tmp_path: Path) -> None:
    """The file and its log are counted apart."""
    (tmp_path / "a.db").write_bytes(b"x" * 10)
    assert await bytes_of(f"sqlite:///{tmp_path}/a.db?durability=normal") == {"store": 10, "wal": 0}
