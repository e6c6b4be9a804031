"""The benchmarks of growth and of claimers as commands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def found_by(module: str, file: Path, *options: str) -> dict[str, Any]:
    """A short run; what it found."""
    command = [sys.executable, "-m", f"benchmarks.{module}", "--out", str(file), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    found: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return found
