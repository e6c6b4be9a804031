from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.peers.publish import BEGIN, END, IMAGES, PAGE, main

from tests.benchpeers.made_up import result, written

ROOT = Path(__file__).resolve().parents[2]
HEAD, TAIL = b"# Page\r\n\nwords \xc3\xa9  \n\n## Results\n", b"\n\nafter\r\n"


def published(folder: Path, **changed: Any) -> list[str]:
    """The lines between the markers."""
    page = folder / "page.md"
    page.write_bytes(HEAD + f"{BEGIN}\nold\n{END}".encode() + TAIL)
    assert main([str(written(folder, **changed)), "--docs", str(page), "--images", str(folder / "img")]) == 0
    return page.read_text("utf-8").partition(BEGIN)[2].partition(END)[0].splitlines()


def test_figures_have_a_line_for_each_contender(tmp_path: Path) -> None:
    """Mulligan comes first and in bold, limits last and marked; nobody's figures are no column, and what one lacks is a dash."""
    lines = published(tmp_path)
    start = lines.index("### Figures on Redis")
    assert lines[start + 2 : start + 14] == [
        "|  | one/s | drain/s |",
        "| --- | ---: | ---: |",
        "| **mulligan-redis** | 2,000 | 20,000 ±35% |",
        "| bullmq | - | 11,000 ±9% |",
        "| taskiq | 4,000 | 4,000 |",
        "| *bare-redis* (the limit) | - | 50,000 |",
        "",
        "|  | p50 ms | p99 ms |",
        "| --- | ---: | ---: |",
        "| **mulligan-redis** | 1 | 10 |",
        "| bullmq | 2 | - |",
        "| taskiq | 1 | 100 |",
    ]


def test_ratios_tell_who_is_ahead(tmp_path: Path) -> None:
    """More than 1 is ahead, also where less is better."""
    lines = published(tmp_path)
    start = lines.index("| mulligan-redis beside | one/s | drain/s | p50 ms | p99 ms | storm/s |")
    assert lines[start + 2 : start + 5] == [
        "| bullmq | - | 1.82x | 2.00x | - | 5.00x |",
        "| taskiq | 0.50x | 5.00x | 1.00x | 10.00x | - |",
        "| *bare-redis* (the limit) | - | 0.40x | - | - | - |",
    ]


def test_targets_are_told_with_their_spread(tmp_path: Path) -> None:
    """A ratio of medians, the ratios of the rounds, and in how many of those it would have been otherwise."""
    lines = published(tmp_path)
    assert "| mulligan-redis, drain/s: at least 1.5x BullMQ (bullmq) | 1.82x | 1.33 to 3x | reached |" in lines
    assert "| mulligan-redis, drain/s: at least 8x the best Python peer (taskiq) | 5x | 4 to 7.50x | **missed** |" in lines
    assert "| mulligan-redis, one/s: at least 1x the best peer as durable (taskiq) | 0.5x | - | **missed** |" in lines
    assert "| mulligan-redis, p50 ms: at most 1.5 | 1 | - | reached |" in lines
    told = [line for line in lines if " | reached |" in line or "**missed**" in line]
    reached = sum("**missed**" not in line for line in told)
    assert 0 < reached < len(told)
    assert any(line.startswith(f"{reached} of the {len(told)} targets") for line in lines)


@pytest.mark.parametrize(
    ("drains", "told"),
    [
        ([20_000.0, 10_000.0, 20_000.0], "| 2x | 1 to 2x | reached, missed in 1 of 3 rounds |"),
        ([10_000.0, 10_000.0, 20_000.0], "| 1x | 1 to 2x | **missed**, reached in 1 of 3 rounds |"),
        ([14_990.0, 14_990.0, 14_990.0], "| 1.499x | - | **missed** |"),
    ],
)
def test_a_target_that_hangs_on_chance_says_so(tmp_path: Path, drains: list[float], told: str) -> None:
    """The medians say one thing, a round by itself the other. A near miss is not rounded to a hit."""
    peers = {
        "mulligan-redis": {"store": "redis", "rounds": {"drain_per_s": drains}},
        "bullmq": {"store": "redis", "rounds": {"drain_per_s": [10_000.0] * 3}},
    }
    assert f"| mulligan-redis, drain/s: at least 1.5x BullMQ (bullmq) {told}" in published(tmp_path, peers=peers)


def test_the_run_is_described(tmp_path: Path) -> None:
    """Date, command, machine, servers and noise, and what was not measured; no folder of the machine is told."""
    lines = published(
        tmp_path,
        date="2026-11-30",
        command="/" + "home/me/bin/python -m benchmarks.peers --out found.json",
        servers={"postgres": "16.4", "redis": "7.0"},
        machine={"cpus": 2, "memory_gib": 24, "python": "3.11.7", "kernel": "6.1"},
        problems=["oban: not measured, /" + "home/me/erlpack.c is missing"],
    )
    assert lines[1:7:2] == [
        "Made on 2026-11-30 by `python -m benchmarks.peers --out found.json`, 3 rounds.",
        "A fixed loop of CPU work took 10.0 ms (fastest 9.0, slowest 14.0); 25% of the steps began in a noisy moment.",
        "The machine: 2 cores, 24 GiB of memory, Python 3.11.7, kernel 6.1, PostgreSQL 16.4, Redis 7.0.",
    ]
    assert "- oban: not measured, erlpack.c is missing" in lines


def test_what_a_file_does_not_tell_is_left_out(tmp_path: Path) -> None:
    """A file without date, command, servers, machine and noise is published all the same."""
    lines = published(tmp_path, machine={}, noise={})
    assert lines[1:4] == ["Made in 3 rounds.", "", "### Targets"]


def test_the_rest_of_the_page_is_left_as_it_is(tmp_path: Path) -> None:
    """Byte for byte, ends of lines included; a second time changes nothing at all."""
    published(tmp_path)
    page = (tmp_path / "page.md").read_bytes()
    assert page.startswith(HEAD + BEGIN.encode())
    assert page.endswith(END.encode() + TAIL)
    assert b"old" not in page
    pictures = {path.name: path.read_bytes() for path in (tmp_path / "img").iterdir()}
    assert main([str(tmp_path / "found.json"), "--docs", str(tmp_path / "page.md"), "--images", str(tmp_path / "img")]) == 0
    assert (tmp_path / "page.md").read_bytes() == page
    assert {path.name: path.read_bytes() for path in (tmp_path / "img").iterdir()} == pictures


def test_pictures_are_shown_from_where_they_lie(tmp_path: Path) -> None:
    """Each picture that was written is on the page, by a path from the page."""
    lines = published(tmp_path)
    shown = {line.rpartition("(")[2].rstrip(")") for line in lines if line.startswith("![")}
    assert shown == {f"img/{path.name}" for path in (tmp_path / "img").iterdir()}
    assert lines.index("![Drain of no-op jobs by one worker](img/drain.svg)") < lines.index("### Figures on PostgreSQL")


def test_runs_of_other_measures_are_one_result(tmp_path: Path) -> None:
    """Each run is described by itself; a contender has the figures of all of them in one line, and targets go by all of them."""
    kills = {name: {"store": "redis", "rounds": {"lost": [lost]}} for name, lost in (("mulligan-redis", 0.0), ("saq", 7.0))}
    first = written(tmp_path, command="python -m benchmarks.peers")
    second = tmp_path / "kills.json"
    second.write_text(json.dumps(result(command="python -m benchmarks.peers --measure kill", peers=kills)), "utf-8")
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}\n{END}", "utf-8")
    assert main([str(first), str(second), "--docs", str(page), "--images", str(tmp_path / "img")]) == 0
    lines = page.read_text("utf-8").splitlines()
    assert lines[1] == "Made by `python -m benchmarks.peers`, 3 rounds."
    assert lines[5] == "Made by `python -m benchmarks.peers --measure kill`, 1 round."
    assert "| mulligan-redis, lost: at most 0 | 0 | - | reached |" in lines
    assert "| mulligan-redis, drain/s: at least 1.5x BullMQ (bullmq) | 1.82x | 1.33 to 3x | reached |" in lines
    assert any(line.startswith("| saq") and "| 7 " in line for line in lines)


def test_runs_of_the_same_measure_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Figures of two runs cannot be compared, and one cannot be preferred to the other; the figure is named, and nothing is written."""
    first = written(tmp_path)
    second = tmp_path / "again.json"
    second.write_text(json.dumps(result(peers={"saq": {"store": "redis", "rounds": {"drain_per_s": [1.0], "lost": [0.0]}}})), "utf-8")
    page, images = tmp_path / "page.md", tmp_path / "img"
    page.write_text(f"{BEGIN}\nold\n{END}", "utf-8")
    assert main([str(first), str(second), "--docs", str(page), "--images", str(images)]) == 1
    told = capsys.readouterr().err
    assert "drain_per_s: measured in more than one" in told and "lost" not in told
    assert "old" in page.read_text("utf-8") and not images.exists()


@pytest.mark.parametrize("text", ["# Page\n", f"{BEGIN}\n", f"{END}\n{BEGIN}\n", f"{BEGIN}{BEGIN}{END}"])
def test_a_page_without_its_markers_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    """The sentence names the page and the markers, and nothing is written, plots neither."""
    page, images = tmp_path / "page.md", tmp_path / "img"
    page.write_text(text, "utf-8")
    assert main([str(written(tmp_path)), "--docs", str(page), "--images", str(images)]) == 1
    told = capsys.readouterr().err
    assert str(page) in told and BEGIN in told and END in told
    assert page.read_text("utf-8") == text
    assert not images.exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"peers": {"saq": {}}}', '{"peers": {}}'])
def test_a_file_that_holds_no_results_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    """A sentence, not a traceback; the page keeps what it has."""
    found, page = tmp_path / "found.json", tmp_path / "page.md"
    found.write_text(text, "utf-8")
    page.write_text(f"{BEGIN}\nold\n{END}", "utf-8")
    assert main([str(found), "--docs", str(page), "--images", str(tmp_path / "img")]) == 1
    assert str(found) in capsys.readouterr().err
    assert "old" in page.read_text("utf-8")


def test_the_guide_can_be_published_to() -> None:
    """The page of the guide has its markers, and its plots do not lie among those of the storms, which a test of theirs counts."""
    page = (ROOT / PAGE).read_text("utf-8")
    assert page.count(BEGIN) == page.count(END) == 1
    assert IMAGES.parent == PAGE.parent / "img"
