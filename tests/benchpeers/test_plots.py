from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from benchmarks.peers.drawing import DARK, LIGHT, Axis, Mark, Panel, bars, decades, steps
from benchmarks.peers.found import read
from benchmarks.peers.plots import plots

from tests.benchpeers.made_up import ROUNDS, written

SVG = "{http://www.w3.org/2000/svg}"


def pictures(folder: Path, **changed: Any) -> dict[str, ET.Element]:
    return {plot.file: ET.fromstring(plot.svg) for plot in plots(read(written(folder, **changed)))}


def widths(picture: ET.Element) -> dict[str, float]:
    return {bar.attrib["data-name"]: float(bar.attrib["width"]) for bar in picture.iter(f"{SVG}rect") if "data-name" in bar.attrib}


def texts(picture: ET.Element) -> list[str]:
    return [text.text or "" for text in picture.iter(f"{SVG}text")]


def test_every_contender_is_in_the_picture_of_the_drains(tmp_path: Path) -> None:
    """By name, mulligan in a look of its own; title and description are there for those who do not see it."""
    picture = pictures(tmp_path)["drain.svg"]
    assert set(ROUNDS) <= set(texts(picture))
    looks = {bar.attrib["data-name"]: bar.attrib["class"] for bar in picture.iter(f"{SVG}rect") if "data-name" in bar.attrib}
    assert looks["mulligan-redis"] == "bar ours"
    assert looks["bullmq"] == "bar peer"
    assert looks["bare-redis"] == "bar loop"
    assert picture.findtext(f"{SVG}title") == "Drain of no-op jobs by one worker"
    assert "mulligan-redis 20,000 ±35%" in (picture.findtext(f"{SVG}desc") or "")
    assert "jobs/s" in texts(picture)


def test_bars_are_as_long_as_their_values(tmp_path: Path) -> None:
    """Within a store lengths are to each other as medians are."""
    found = widths(pictures(tmp_path)["drain.svg"])
    assert found["mulligan-redis"] > 50
    for name, median in (("bullmq", 11_000), ("taskiq", 4_000), ("bare-redis", 50_000)):
        assert found[name] / found["mulligan-redis"] == pytest.approx(median / 20_000, abs=0.001)
    assert found["mulligan-postgres"] == found["graphile-worker"]


def test_a_loop_far_away_is_cut_and_says_so() -> None:
    """It goes to the edge with a mark across, and the others keep their lengths."""
    near = [Mark("us", "ours", 90, 100, 110, "100"), Mark("them", "peer", 50, 50, 50, "50")]
    picture = ET.fromstring(bars("t", "u", [Panel("p", [*near, Mark("bare", "loop", 900, 1_000, 1_100, "1,000")])]))
    found = widths(picture)
    assert found["us"] == pytest.approx(2 * found["them"], abs=0.02)
    assert found["us"] < found["bare"] < 2 * found["us"]
    assert [path.attrib["class"] for path in picture.iter(f"{SVG}path")].count("cut") == 1
    whole = ET.fromstring(bars("t", "u", [Panel("p", [*near, Mark("bare", "loop", 250, 250, 250, "250")])]))
    assert widths(whole)["bare"] == pytest.approx(2.5 * widths(whole)["us"], abs=0.05)
    assert "cut" not in [path.attrib["class"] for path in whole.iter(f"{SVG}path")]


def test_whiskers_reach_from_the_slowest_to_the_fastest_round() -> None:
    """They lie on both sides of the end of the bar; one round has none."""
    picture = ET.fromstring(bars("t", "u", [Panel("p", [Mark("us", "ours", 50, 75, 100, "75"), Mark("one", "peer", 75, 75, 75, "75")])]))
    [path] = [path.attrib["d"] for path in picture.iter(f"{SVG}path") if path.attrib["class"] == "whisker"]
    [bar] = [bar for bar in picture.iter(f"{SVG}rect") if bar.attrib.get("data-name") == "us"]
    start, width = float(bar.attrib["x"]), float(bar.attrib["width"])
    assert float(path[1:].split()[0]) - start == pytest.approx(width * 50 / 75, abs=0.2)
    assert float(path.rpartition("M")[2].split()[0]) - start == pytest.approx(width * 100 / 75, abs=0.2)


def test_ranges_lie_on_one_scale_of_powers_of_ten(tmp_path: Path) -> None:
    """From median to tail: ten times is half as long as a hundred times, on every store; who has no tail is not drawn."""
    picture = pictures(tmp_path)["pickup.svg"]
    found = {
        line.attrib["data-name"]: float(line.attrib["x2"]) - float(line.attrib["x1"])
        for line in picture.iter(f"{SVG}line")
        if "data-name" in line.attrib
    }
    assert set(found) == {"mulligan-redis", "taskiq"}
    assert found["taskiq"] == pytest.approx(2 * found["mulligan-redis"], abs=0.05)
    assert {"1 to 10", "1 to 100", "ms"} <= set(texts(picture))


def test_a_storm_with_pauses_left_out_is_marked(tmp_path: Path) -> None:
    """graphile-worker cannot try again at once; the picture says what its rate is."""
    told = texts(pictures(tmp_path)["storm.svg"])
    assert "graphile-worker *" in told
    assert any(text.startswith("* cannot try again at once") for text in told)
    assert not any("*" in text for text in texts(pictures(tmp_path)["drain.svg"]))


def test_nothing_is_drawn_of_what_was_not_measured(tmp_path: Path) -> None:
    """No bulk enqueue, no picture of it; a single bar on its own scale is none either."""
    assert list(pictures(tmp_path)) == ["drain.svg", "enqueue.svg", "pickup.svg", "storm.svg"]
    alone = {"mulligan-redis": {"store": "redis", "rounds": {"drain_per_s": [1.0]}}}
    assert pictures(tmp_path, peers=alone) == {}


def test_the_same_values_give_the_same_bytes(tmp_path: Path) -> None:
    """Also when the file lists its peers in another order, two equal ones among them."""
    peers = {name: {"store": "redis", "rounds": {"drain_per_s": [5.0], "pickup_p50_ms": [1.0], "pickup_p99_ms": [2.0]}} for name in "abc"}
    once = [plot.svg for plot in plots(read(written(tmp_path, peers=peers)))]
    turned = dict(reversed(peers.items()))
    assert len(once) == 2
    assert [plot.svg for plot in plots(read(written(tmp_path, peers=turned)))] == once


def test_names_of_any_signs_are_well_formed() -> None:
    """A name is text, whatever it is made of."""
    picture = ET.fromstring(
        bars("a & b", "<u>", [Panel('"p"', [Mark('<x> & "y"', "peer", 1, 1, 1, "1 < 2"), Mark("z", "ours", 0, 0, 0, "0")])])
    )
    assert {"a & b", "<u>", '"p"', '<x> & "y"', "1 < 2"} <= set(texts(picture))


def test_axes_hold_what_they_are_made_for() -> None:
    """They begin and end at round values around everything, also around nothing and around a single value."""
    assert steps(44_000) == [0, 10_000, 20_000, 30_000, 40_000, 50_000]
    assert len(steps(0)) == 2
    assert decades(1.14, 225) == [1, 2, 5, 10, 20, 50, 100, 200, 500]
    assert len(decades(2, 2)) == 2
    for low, high in itertools.combinations([0.003, 0.5, 1, 7, 99, 100, 101], 2):
        ticks = decades(low, high)
        assert ticks[0] <= low * 1.001 and ticks[-1] >= high * 0.999
    axis = Axis([1, 10, 100], 0, 200, log=True)
    assert (axis.place(10), axis.place(0.1), axis.place(1_000)) == (100, 0, 200)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_stand_out_from_the_page(palette: dict[str, str]) -> None:
    """As the accessibility guidelines want it: 4.5 for text, of which the name of mulligan is some, 3 for what is drawn."""

    def brightness(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else math.pow((part + 0.055) / 1.055, 2.4) for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    page = brightness(palette["page"])
    for look, wanted in (("text", 4.5), ("ours", 4.5), ("peer", 3), ("loop", 3)):
        low, high = sorted((page, brightness(palette[look])))
        assert (high + 0.05) / (low + 0.05) >= wanted, look
