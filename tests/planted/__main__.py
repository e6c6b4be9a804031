"""`python -m tests.planted`: plants every bug of the list, hunts it, and prints the score. Exit code 1 unless all were caught.

Before that the tests that the bugs name are run once without any bug; exit code 2 if one of them fails, as it would catch everything.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.planted.bug import Bug
from tests.planted.hunt import SEEDS_MAX, Catch, hunt, red_unplanted
from tests.planted.listed import BUGS


def main() -> int:
    """Hunts the bugs asked for; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="bugs whose name holds this text")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help="most seeds per bug (default %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="hunts at once (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON object per bug, and the score as the last one")
    asked = parser.parse_args()
    bugs = [bug for bug in BUGS if asked.only in bug.name]
    if red := red_unplanted(bugs):
        print("tests that fail without a bug catch nothing:", *red, sep="\n  ", file=sys.stderr, flush=True)
        return 2
    catches = []
    with ThreadPoolExecutor(asked.jobs) as pool:
        for number, (bug, catch) in enumerate(zip(bugs, pool.map(lambda one: hunt(one, seeds=asked.seeds), bugs), strict=True), start=1):
            catches.append(catch)
            print(_line(number, len(bugs), bug, catch, as_json=asked.json), flush=True)
    caught = sum(catch.caught for catch in catches)
    print(json.dumps({"planted": len(bugs), "caught": caught}) if asked.json else f"{caught} of {len(bugs)} planted bugs caught")
    return 0 if bugs and caught == len(bugs) else 1


def _line(number: int, count: int, bug: Bug, catch: Catch, *, as_json: bool) -> str:
    if as_json:
        return json.dumps(catch._asdict() | {"of": bug.of, "file": bug.file})
    how = f"seed {catch.seeds}" if catch.seeds else "tests"
    return f"{number:3}/{count}  {'caught' if catch.caught else 'MISSED'}  {bug.name:58}  {how:9}  {catch.took_s:6.1f} s  {catch.by}"


if __name__ == "__main__":
    sys.exit(main())
