"""`make storms`: plays every scene in full size, prints its figures beside what must hold, and draws its plots."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.storms.aligned import play_aligned
from benchmarks.storms.dead import play_dead
from benchmarks.storms.flapping import play_flapping
from benchmarks.storms.mass import play_mass, play_vanished
from benchmarks.storms.outage import play_outage
from benchmarks.storms.stage import Outcome
from benchmarks.storms.tenants import play_tenants

SCENES: dict[str, Callable[..., Outcome]] = {
    "mass": play_mass,
    "vanished": play_vanished,
    "outage": play_outage,
    "aligned": play_aligned,
    "dead": play_dead,
    "flapping": play_flapping,
    "tenants": play_tenants,
}


def progress(text: str) -> None:
    """One line on a terminal, written over the one before; nothing elsewhere."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def table(name: str, outcome: Outcome) -> str:
    """The figures of a scene, one a line, with their bounds."""
    lines = [name]
    for figure in outcome.figures:
        value = f"{figure.value:,.3f}".rstrip("0").rstrip(".") + (f" {figure.unit}" if figure.unit else "")
        bound = "" if figure.at_most is None else f"at most {figure.at_most:,.3g}: {'holds' if figure.holds else 'BROKEN'}"
        lines.append(f"  {figure.name:<84}{value:>14}  {bound}".rstrip())
    return "\n".join(lines)


def main() -> int:
    """Plays what was asked for; 0 if every bound holds."""
    parser = argparse.ArgumentParser(prog="make storms ARGS=...", description="Outages, mass failures and floods under virtual time.")
    parser.add_argument("--out", type=Path, help="write the plots into this folder, as SVG")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON too; the table then goes to standard error")
    parser.add_argument("--only", choices=list(SCENES), action="append", help="play only this scene; may be repeated")
    parser.add_argument("--seed", type=int, default=1, help="of all chance in the scenes (1)")
    wanted = parser.parse_args()
    outcomes: dict[str, Outcome] = {}
    names = wanted.only or list(SCENES)
    for number, name in enumerate(names, start=1):
        progress(f"{number} of {len(names)}: {name} ...")
        began_s = time.monotonic()
        outcome = outcomes[name] = SCENES[name](seed=wanted.seed)
        progress("")
        lines = sys.stderr if wanted.json else sys.stdout
        lines.write(table(f"{name} ({time.monotonic() - began_s:,.0f} s)", outcome) + "\n")
        lines.flush()
        if wanted.out is not None:
            wanted.out.mkdir(parents=True, exist_ok=True)
            for file, chart in outcome.charts.items():
                (wanted.out / f"{file}.svg").write_text(chart.svg(), "utf-8")
    if wanted.json:
        figures = {name: [figure._asdict() for figure in outcome.figures] for name, outcome in outcomes.items()}
        sys.stdout.write(json.dumps(figures, indent=2) + "\n")
    return 0 if all(figure.holds for outcome in outcomes.values() for figure in outcome.figures) else 1


if __name__ == "__main__":
    logging.getLogger("mulligan").setLevel(logging.ERROR)  # thousands of failures are what this is about
    sys.exit(main())
