"""Settings that come from the environment."""

from __future__ import annotations

import os

STORE_VARIABLE = "MULLIGAN_STORE"
STORE_DEFAULT = "sqlite:///mulligan.db"


def default_url() -> str:
    """The store when none is named: MULLIGAN_STORE, else a file in the working directory."""
    return os.environ.get(STORE_VARIABLE) or STORE_DEFAULT
