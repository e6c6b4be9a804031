"""What `mulligan bench --beside` compares with: other queues, and the bare batch loop of the same store.

Their measuring programs are in the repository, in benchmarks/, and not part of the package.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, NamedTuple

from mulligan.cli.bench_figures import child
from mulligan.cli.bench_scratch import KINDS, Place
from mulligan.core.errors import BadSetting


class Peer(NamedTuple):
    """Something to compare with."""

    package: str | None  # what has to be installed for it, beyond our own drivers
    kinds: frozenset[str]  # the stores it is compared on


PEERS = {
    "bare": Peer(None, frozenset(KINDS.values())),
    "huey": Peer("huey", frozenset({"sqlite"})),
    "taskiq": Peer("taskiq-redis", frozenset({"redis"})),
}


def programs() -> Path:
    """Where the measuring programs are."""
    return Path(__file__).resolve().parents[3] / "benchmarks"


def require(name: str, kind: str) -> None:
    """BadSetting where this peer cannot be measured beside this kind of store."""
    peer = PEERS[name]
    if kind not in peer.kinds:
        raise BadSetting(f"--beside {name} needs a store it can run on too ({', '.join(sorted(peer.kinds))}), and this one is {kind}")
    if peer.package is not None and importlib.util.find_spec(peer.package.replace("-", "_")) is None:
        raise BadSetting(
            f"--beside {name} needs {peer.package}, which is not installed in this Python; "
            f"install it (pip install {peer.package}), or leave --beside {name} out"
        )
    if not _program(name, kind).exists():
        raise BadSetting(f"--beside {name} works in a checkout of the repository only: its measuring program is not part of the package")


async def drain(name: str, place: Place, jobs: int) -> dict[str, Any]:
    """One round: {"seconds": ...}, and of the bare loop also {"insert_s": ...}."""
    arguments = [str(jobs)]
    if name == "bare":
        arguments.insert(0, place.namespace)
    elif name == "taskiq":
        arguments.insert(0, f"{{{place.namespace}}}:taskiq")
    return await child(*arguments, url=place.driver_url, program=[str(_program(name, place.kind))])


def _program(name: str, kind: str) -> Path:
    return programs() / (f"bare_{kind}.py" if name == "bare" else f"{name}_adapter.py")
