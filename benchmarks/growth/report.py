"""What was measured as tables: for the terminal, and for the documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.growth.page import markdown
from benchmarks.peers.figures import summary
from benchmarks.peers.table import columns, shown

Table = tuple[str, Sequence[str], list[list[str]]]
FLAT = ("claim", "settle")  # meant to stay within FLAT_MAX of the smallest size
FLAT_MAX = 2.0


def ratio_of(times_s: Mapping[str, Sequence[float]], size: str) -> float:
    """The median at a size, beside that at the smallest."""
    first = next(iter(times_s.values()))
    return summary(times_s[size]).median / summary(first).median


def targets(result: Mapping[str, Any]) -> list[str]:
    """Whether what is meant to be flat is."""
    told = []
    for store, found in result["stores"].items():
        for name in FLAT:
            times_s = found["times_s"][name]
            sizes = list(times_s)
            ratio = max(ratio_of(times_s, size) for size in sizes)
            verdict = "reached" if ratio <= FLAT_MAX else "MISSED"
            told.append(f"{store}: {name} from {int(sizes[0]):,} to {int(sizes[-1]):,}: {ratio:.2f}x, at most {FLAT_MAX:g}x: {verdict}")
    return told


def joined(results: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """What was measured in several runs, each on other stores; ValueError where one table cannot hold them."""
    name = "bloat" if "bloat" in results[0] else "stores"
    if any(name not in one or _manner(one) != _manner(results[0]) for one in results):
        raise ValueError("the files are of runs with other sizes or other jobs")
    found = [(store, of_store) for one in results for store, of_store in one[name].items()]
    if len(dict(found)) < len(found):
        raise ValueError("two of the files have figures of one store")
    return {**results[0], name: dict(found)}


def _manner(result: Mapping[str, Any]) -> tuple[Any, ...]:
    """What must be the same in runs that stand in one table."""
    sizes = {tuple(found["bytes_per_job"]) for found in result.get("stores", {}).values()}
    return result.get("jobs"), result.get("grow"), sizes


def as_text(result: Mapping[str, Any]) -> str:
    """For the terminal."""
    return "\n\n".join(f"{title}\n{columns([head, *rows])}" for title, head, rows in tables(result))


def as_markdown(result: Mapping[str, Any]) -> str:
    """For the documentation."""
    return "\n\n".join(f"**{title}**\n\n{markdown(head, rows)}" for title, head, rows in tables(result))


def tables(result: Mapping[str, Any]) -> list[Table]:
    """Of a run that filled stores, or of one that looked for bloat."""
    if "bloat" in result:
        return [_bloat_table(name, one) for name, one in result["bloat"].items()]
    made = [_times_table(store, found, result["grow"]) for store, found in result["stores"].items()]
    return [*made, _bytes_table(result)]


def _times_table(store: str, found: Mapping[str, Any], grow: Sequence[str]) -> Table:
    sizes = list(next(iter(found["times_s"].values())))
    head = ["call", *(f"{int(size):,}, ms" for size in sizes), *(f"{int(size):,}" for size in sizes[1:])]
    rows = []
    for name, times_s in found["times_s"].items():
        medians = [shown(summary(times_s[size]).median * 1e3) + ("!" if name in found["failed"].get(size, ()) else "") for size in sizes]
        rows.append([name, *medians, *(f"{ratio_of(times_s, size):.2f}x" for size in sizes[1:])])
    told = " (!: no answer within the time-out)" if found["failed"] else ""
    return f"{store}: medians, and beside the smallest; jobs of each kind ({', '.join(grow)}){told}", head, rows


def _bytes_table(result: Mapping[str, Any]) -> Table:
    stores = result["stores"]
    sizes = list(next(iter(stores.values()))["bytes_per_job"])
    rows = [[store, *(f"{found['bytes_per_job'][size]:,.0f}" for size in sizes)] for store, found in stores.items()]
    return "bytes per job, with its indexes", ["store", *(f"{int(size):,} of each kind" for size in sizes)], rows


def _bloat_table(name: str, samples: Sequence[Mapping[str, Any]]) -> Table:
    names = [key for key in samples[0] if key != "after"]
    head = ["after", *(key.replace("_", " ") for key in names)]
    return name, head, [[str(one["after"]), *(shown(one[key]) for key in names)] for one in samples]
