"""`python -m mulligan`: the command line."""

from __future__ import annotations

from mulligan.cli import main

if __name__ == "__main__":
    main(prog_name="mulligan")
