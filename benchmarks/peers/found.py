"""Found: a result file of `python -m benchmarks.peers --out`, read back for those who publish it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.peers.figures import FIGURES, Summary, summary
from benchmarks.peers.roster import OURS_TOO, PEERS, STORES, ours

WORDS = {"postgres": "PostgreSQL", "redis": "Redis", "sqlite": "SQLite", "mongo": "MongoDB"}


class Unpublishable(Exception):
    """The file or the page is not what it has to be; nothing was written."""


class Contender(NamedTuple):
    """One line of the tables."""

    name: str
    store: str
    role: str  # as in the roster
    waits: bool  # it cannot try again at once, so its storm leaves pauses out
    version: str
    rounds: Mapping[str, list[float]]

    @property
    def is_ours(self) -> bool:
        """Whether it is what the others are compared with."""
        return self.name == ours(self.store)

    @property
    def is_loop(self) -> bool:
        """Whether it is no queue but a bare loop on the store: what a queue could reach if it did nothing else."""
        return self.role in ("limit", "naive")

    @property
    def figures(self) -> dict[str, Summary]:
        """Medians and spreads."""
        return {name: summary(values) for name, values in self.rounds.items()}


class Found(NamedTuple):
    """Everything of one run. What a file does not tell (an older one, say) is empty."""

    machine: Mapping[str, Any]
    servers: Mapping[str, str]
    noise: Mapping[str, float]
    problems: list[str]
    date: str
    command: str
    contenders: list[Contender]

    @property
    def stores(self) -> list[str]:
        """In the order of the roster; a store that it does not know comes last."""
        here = {one.store for one in self.contenders}
        return [store for store in STORES if store in here] + sorted(here - set(STORES))

    def on(self, store: str) -> list[Contender]:
        """Who was measured on a store: mulligan, the peers, the bare loops."""
        here = [one for one in self.contenders if one.store == store]
        return sorted(here, key=lambda one: (one.is_loop, not one.is_ours, one.role not in OURS_TOO))

    @property
    def round_count(self) -> int:
        """How many rounds there were."""
        return max((len(values) for one in self.contenders for values in one.rounds.values()), default=0)

    def summaries(self, round_number: int | None = None) -> dict[str, dict[str, Summary]]:
        """By name and figure, of all rounds or of one; only of those in the roster, because targets ask it."""
        made: dict[str, dict[str, Summary]] = {}
        for one in self.contenders:
            if one.name in PEERS:
                made[one.name] = {
                    figure: summary(values if round_number is None else [values[round_number]])
                    for figure, values in one.rounds.items()
                    if round_number is None or round_number < len(values)
                }
        return made


def read(path: Path) -> Found:
    """The file, or a sentence about what is wrong with it."""
    try:
        data = json.loads(path.read_text("utf-8"))
        contenders = [_contender(name, entry) for name, entry in data["peers"].items()]
    except OSError as problem:
        raise Unpublishable(f"{path}: {problem.strerror}") from problem
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise Unpublishable(f"{path} is not what `python -m benchmarks.peers --out FILE` writes: {problem!r}") from problem
    contenders = [one for one in contenders if one.rounds]
    if not contenders:
        raise Unpublishable(f"{path} holds no figures")
    machine = dict(data.get("machine", {}))
    return Found(
        machine,
        data.get("servers") or machine.pop("servers", {}),
        data.get("noise", {}),
        data.get("problems", []),
        data.get("date") or machine.pop("date", ""),
        data.get("command") or machine.pop("command", ""),
        contenders,
    )


def joined(runs: Sequence[Found]) -> Found:
    """Several runs as one: whatever is compared with each other was measured in one of them, so none may have a figure that another has."""
    if len(runs) == 1:
        return runs[0]
    made: dict[str, Contender] = {}
    for run in runs:
        for one in run.contenders:
            before = made.get(one.name)
            made[one.name] = one if before is None else one._replace(rounds={**before.rounds, **one.rounds})
    measured = [{figure for one in run.contenders for figure in one.rounds} for run in runs]
    twice = sorted({figure for number, here in enumerate(measured) for other in measured[:number] for figure in here & other})
    if twice:
        raise Unpublishable(f"{', '.join(twice)}: measured in more than one of the files, and only ratios of one run mean anything")
    machine = {name: value for run in runs for name, value in run.machine.items()}
    servers = {name: version for run in runs for name, version in run.servers.items()}
    return Found(machine, servers, {}, [line for run in runs for line in run.problems], "", "", list(made.values()))


def _contender(name: str, entry: Mapping[str, Any]) -> Contender:
    peer = PEERS.get(name)
    role = entry.get("role") or (peer.role if peer is not None else "peer")
    waits = peer is not None and peer.waits_after_failure
    rounds = {figure: values for figure, values in entry["rounds"].items() if figure in FIGURES and values}
    return Contender(name, entry["store"], role, waits, str(entry.get("version") or ""), rounds)
