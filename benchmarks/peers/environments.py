"""An environment for each peer, made once below .bench/: a venv from hashed requirements, or node_modules from a lock file."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.peers.programs import PeerFailed
from benchmarks.peers.roster import Peer

from mulligan import __version__

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[1] / ".bench"
NEEDS = HERE / "needs"
ADAPTERS = HERE / "adapters"
INSTALL_S = 600
SAID_MAX = 300
PYTHONS = ("python3.14", "python3.13", "python3.12")


class Environment:
    """How the programs of one peer are started."""

    def __init__(self, command: list[str], variables: dict[str, str]) -> None:
        self.command = command
        self.variables = variables


def environment(peer: Peer) -> Environment:
    """The environment of a peer, made now if it is missing or its requirements have changed. PeerFailed if it cannot be made."""
    program = [str(ADAPTERS / peer.adapter), *(("--variant", peer.variant) if peer.variant else ())]
    if peer.needs is None:
        return Environment([sys.executable, *program], {})
    folder = CACHE / peer.needs
    if peer.is_node:
        node = _found("node")
        needs = NEEDS / peer.needs
        _make(folder, needs / "package-lock.json", node, lambda: _install_node(folder, needs))
        return Environment([node, *program], {"NODE_PATH": str(folder / "node_modules"), "NODE_ENV": "production"})
    wanted = NEEDS / f"{peer.needs}.txt"
    python = _python(peer)
    _make(folder, wanted, python, lambda: _install_python(folder, wanted, python, peer.from_source))
    return Environment([str(folder / "bin" / "python"), *program], {})


def version(peer: Peer) -> str:
    """The version of a peer that its requirements pin; ours from the package; empty for a bare loop."""
    if peer.needs is None:
        return "" if peer.is_loop else __version__
    if peer.is_node:
        packages = json.loads((NEEDS / peer.needs / "package-lock.json").read_text("utf-8"))["packages"]
        return str(packages[f"node_modules/{peer.needs}"]["version"])
    pins = (NEEDS / f"{peer.needs}.txt").read_text("utf-8").splitlines()
    return next((pin.split("==")[1].split()[0] for pin in pins if pin.split("[")[0].split("==")[0].lower() == peer.needs), "")


def _make(folder: Path, wanted: Path, interpreter: str, install: Callable[[], None]) -> None:
    """Installs, unless the folder has been made from the same requirements for the same interpreter. The note is written last."""
    note = folder / ".made-from"
    version = subprocess.run([interpreter, "--version"], capture_output=True, check=False).stdout
    digest = hashlib.sha256(wanted.read_bytes() + version).hexdigest()
    if note.exists() and note.read_text("utf-8") == digest:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    install()
    note.write_text(digest, "utf-8")


def _install_python(folder: Path, wanted: Path, python: str, from_source: tuple[str, ...]) -> None:
    _run([python, "-m", "venv", str(folder)])
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    built = [word for name in from_source for word in ("--no-binary", name)]
    _run([*pip, "--require-hashes", "--only-binary", ":all:", *built, "-r", str(wanted)])


def _install_node(folder: Path, needs: Path) -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(needs / name, folder / name)
    # `npm ci` refuses a lock file without the optional parts for other systems; `install` takes and checks the same versions.
    _run([_found("npm"), "install", "--loglevel", "error", "--no-audit", "--no-fund", "--ignore-scripts"], folder)


def _python(peer: Peer) -> str:
    """The interpreter for a peer: ours, or a newer one where ours is too old for it."""
    if peer.python is None or sys.version_info[:2] >= peer.python:
        return sys.executable
    given = os.environ.get("MULLIGAN_BENCH_PYTHON")
    for name in [given] if given else PYTHONS:
        path = shutil.which(name)
        # A shim may be found of a Python that is not there, and a name that was given may be of any Python.
        if path and _version(path) >= peer.python:
            return path
    raise PeerFailed(f"needs Python {peer.python[0]}.{peer.python[1]} or newer; name one in MULLIGAN_BENCH_PYTHON")


def _version(python: str) -> tuple[int, ...]:
    """The version of an interpreter; (0, 0) if it does not run."""
    told = subprocess.run(
        [python, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True, check=False
    ).stdout.split()
    return tuple(int(part) for part in told) if len(told) == 2 else (0, 0)


def _found(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise PeerFailed(f"{program} is not installed")
    return path


def _run(command: list[str], folder: Path | None = None) -> None:
    try:
        answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=INSTALL_S)
    except subprocess.TimeoutExpired:
        raise PeerFailed(f"its environment was not made within {INSTALL_S} s") from None
    if answer.returncode != 0:
        lines = [line.strip() for line in (answer.stdout + answer.stderr).splitlines() if line.strip()]
        told = " ".join([line for line in lines if "error" in line.lower()] or lines[-1:] or ["nothing was said"])
        raise PeerFailed(f"its environment cannot be made: {told[:SAID_MAX]}")
