"""The checker: `python -m mulligan.torture.checker LEDGER STATE`. Decides from the ledger and the final state alone what went wrong.

It uses nothing of the queue but the format of these two files, and answers with one JSON document; exit code 1 on any violation.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import msgspec

from mulligan.torture.checks import check_lives, successes
from mulligan.torture.counting import CAUSES, check_counts
from mulligan.torture.findings import CHECKS, Findings
from mulligan.torture.history import History, hash_of, read_history
from mulligan.torture.ledger import Row, read_rows
from mulligan.torture.timing import check_times

RULE_OF_THREE = 3  # nothing seen in n trials shows, at 95 %, that less than 3/n of them go wrong


def judge(history: History, rows: dict[str, Row], slack_s: float = 0.0) -> dict[str, Any]:
    """Everything that can be said about a run."""
    findings = Findings()
    check_lives(history, rows, findings)
    check_counts(history, rows, findings, slack_s)
    times = check_times(history, findings, slack_s)
    acknowledged = [job for job, life in history.lives.items() if life.acknowledged_at]
    by_status = {status: sum(row.status == status for row in rows.values()) for status in ("done", "failed", "cancelled")}
    wanted = len(rows) - by_status["cancelled"]
    zeros = ("lost", "rerun", "phantom", "over_limit", "stale_accepted", "overlap", "early", "effect")
    trials = _trials(history, len(acknowledged), by_status["done"], findings)
    return {
        "violations": findings.total,
        **{name: findings.figures[name] for name in zeros},
        "bounds": {name: RULE_OF_THREE / trials[name] for name in zeros if trials[name] and not findings.figures[name]},
        "by_check": {check: findings.counts[check] for check in CHECKS},
        "examples": [violation._asdict() for violation in findings.examples],
        "jobs": len(acknowledged),
        "unknown": sum(not life.acknowledged_at for life in history.lives.values()),
        **by_status,
        "done_share": by_status["done"] / wanted if wanted else 0.0,
        "starts": findings.figures["starts"],
        "starts_max": findings.figures["starts_max"],
        "stale_starts": findings.figures["stale_starts"],
        "stale_refused": history.stale,
        "crashes": findings.figures["crashes"],
        **{name: findings.figures[name] for name in (*(f"crashes_by_{cause}" for cause in CAUSES), "crashes_unexplained")},
        **{name: round(value, 3) for name, value in times._asdict().items()},
        "faults": dict(sorted(history.faults.items())),
        "seed": history.settings.get("seed"),
        "lines": history.lines,
    }


def _trials(history: History, jobs: int, stored_done: int, findings: Findings) -> dict[str, int]:
    """In how many cases each thing could have gone wrong."""
    claims = sum(len(life.holds) for life in history.lives.values())
    settles = sum(len(hold.settles) for life in history.lives.values() for hold in life.holds.values())
    starts = findings.figures["starts"]
    done = sum(bool(successes(life)) for life in history.lives.values())
    return {
        "lost": jobs,
        "rerun": done,
        "phantom": starts,
        "over_limit": jobs,
        "stale_accepted": settles,
        "overlap": starts,
        "early": claims,
        "effect": stored_done,
    }


def main() -> int:
    """Reads, judges, prints."""
    parser = argparse.ArgumentParser(prog="python -m mulligan.torture.checker", description=__doc__)
    parser.add_argument("ledger", type=Path)
    parser.add_argument("state", type=Path)
    parser.add_argument("--slack", type=float, default=0.0, help="seconds that a loaded machine is allowed beyond the bounds on time")
    given = parser.parse_args()
    rows = {row.id: row for row in read_rows(given.state)}
    report = judge(read_history(given.ledger), rows, given.slack)
    report["ledger_sha256"] = hash_of(given.ledger)
    sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    return 1 if report["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
