"""Running `mulligan torture` as users do, and reading its answer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.cli.commands import environment

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 7_200
# A machine that runs other tests at the same time may be late; it may not do anything wrong.
SLACK_S = 30


class Torture:
    """The command on one store."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.ledger = folder / "ledger"

    def command(self, **options: object) -> list[str]:
        """As it is typed."""
        given = {"store": self.url, "ledger": self.ledger, "lease": 1, "slack": SLACK_S, "seed": 5, **options}
        typed = [text for name, value in given.items() for text in (f"--{name.replace('_', '-')}", str(value))]
        return [sys.executable, "-m", "mulligan", "torture", "--json", *typed]

    def run(self, **options: object) -> dict[str, Any]:
        """Its report. What it has found, and the end of what its workers said, is shown when a test fails."""
        command = self.command(**options)
        done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert done.stdout, done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        assert "error" not in report, report
        figures = {name: value for name, value in report.items() if name not in ("examples", "bounds")}
        print(json.dumps(figures))
        print("\n".join(f"{one['check']} {one['job']}: {one['text']}" for one in report["examples"]))
        log = self.ledger / "workers.log"
        print(log.read_text("utf-8", "replace")[-2_000:] if log.exists() else "")
        assert done.returncode == (1 if report["violations"] or report.get("stuck") else 0)
        return report
