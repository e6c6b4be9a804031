"""`python -m benchmarks.growth`: what calls cost as a store fills, how many bytes a job takes; with --bloat, many jobs through one table.

Progress goes to the standard error. Only ratios of one run mean anything; a target that was missed is told, and is no error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.claimers.__main__ import numbers, say
from benchmarks.growth.bloat import bloat
from benchmarks.growth.kinds import KINDS
from benchmarks.growth.measuring import measured
from benchmarks.growth.page import publish
from benchmarks.growth.report import as_markdown, as_text, joined, targets
from benchmarks.growth.sites import STORES, Sites

SMALLEST = 400  # fewer jobs of a kind do not fill a page deep inside
ROUNDS_MAX = 15  # each inserts a hundred jobs: with more, the newest 2,000, which a page is looked for in first, would hardly be mixed
BLOATED = ("postgres", "sqlite")


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.growth", description="What calls cost as a store fills.")
    made.add_argument("--store", choices=STORES, action="append", help="only this one; may be repeated (default: all)")
    made.add_argument(
        "--sizes",
        type=numbers,
        default=[1_000, 10_000, 100_000, 1_000_000],
        metavar="A,B",
        help=f"jobs of each kind, from {SMALLEST} (default 1000,10000,100000,1000000)",
    )
    made.add_argument("--grow", choices=list(KINDS), action="append", help="only this kind grows; may be repeated (default: all)")
    made.add_argument("--rounds", type=int, default=9, help="how often each call is measured (default %(default)s)")
    made.add_argument("--bloat", action="store_true", help="many jobs through one table of PostgreSQL, and one file of SQLite")
    made.add_argument("--jobs", type=int, default=1_000_000, help="with --bloat: how many (default %(default)s)")
    made.add_argument("--out", type=Path, help="also write everything to this file, as JSON")
    made.add_argument(
        "--publish",
        type=Path,
        metavar="FILE",
        action="append",
        help="measure nothing; put the tables of such a file into docs/guide/growth.md; may be repeated with files of other stores",
    )
    return made


async def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """What was asked for."""
    with Sites() as sites:
        if asked.bloat:
            stores = [store for store in BLOATED if store in (asked.store or BLOATED)]
            return {"jobs": asked.jobs, "bloat": await bloat(sites, stores, asked.jobs, say)}
        sizes, grow = sorted(asked.sizes), asked.grow or list(KINDS)
        found = {store: await measured(sites, store, sizes, grow, asked.rounds, say) for store in asked.store or STORES}
        return {"rounds": asked.rounds, "grow": grow, "stores": found}


def main() -> int:
    """Measures, or publishes what was measured."""
    asked = parser().parse_args()
    if asked.publish is not None:
        result = joined([json.loads(file.read_text("utf-8")) for file in asked.publish])
        publish("bloat" if "bloat" in result else "growth", as_markdown(result))
        return 0
    if min(asked.sizes) < SMALLEST:
        parser().error(f"--sizes begin at {SMALLEST}")
    if not 1 <= asked.rounds <= ROUNDS_MAX:
        parser().error(f"--rounds takes 1 to {ROUNDS_MAX}")
    result = asyncio.run(measure(asked))
    if asked.out is not None:
        asked.out.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    sys.stdout.write(as_text(result) + "\n")
    if not asked.bloat:
        sys.stdout.write("\n" + "\n".join(targets(result)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
