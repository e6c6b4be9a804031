"""The bare loops of benchmarks/bare_*.py, through the same runner as everybody: `peer_bare.py --variant STORE loop --count N`.

Its answer is {"insert_s": s, "seconds": s}. A loop is no queue: it has no worker, and stores and settles its jobs in one process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

NAMESPACE = "bare"
Figures = dict[str, float]


def _mongo(url: str, count: int) -> Figures:
    import bare_mongo

    return asyncio.run(bare_mongo.run(url, urlsplit(url).path.strip("/"), count))


def _mongo_single(url: str, count: int) -> Figures:
    import bare_mongo_single

    return bare_mongo_single.run(url, urlsplit(url).path.strip("/"), count)


def _postgres(url: str, count: int) -> Figures:
    import bare_postgres

    return asyncio.run(bare_postgres.run(url, NAMESPACE, count))


def _redis(url: str, count: int) -> Figures:
    import bare_redis

    return asyncio.run(bare_redis.run(url, NAMESPACE, count))


def _sqlite(url: str, count: int) -> Figures:
    import bare_sqlite

    return bare_sqlite.run(url.removeprefix("sqlite:///"), "full", count)


LOOPS: dict[str, Callable[[str, int], Figures]] = {
    "mongo": _mongo,
    "mongo-single": _mongo_single,
    "postgres": _postgres,
    "redis": _redis,
    "sqlite": _sqlite,
}


def main() -> None:
    """Runs the loop that was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["loop"])
    parser.add_argument("--variant", choices=list(LOOPS), required=True)
    parser.add_argument("--count", type=int, required=True)
    asked = parser.parse_args()
    sys.stdout.write(json.dumps(LOOPS[asked.variant](os.environ["BENCH_URL"], asked.count)) + "\n")


if __name__ == "__main__":
    main()
