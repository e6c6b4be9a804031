"""`python -m tests.supervisor.serve PARENT ARGUMENTS`: the mulligan command, in a process that ends with the test run that started it."""

from __future__ import annotations

import sys

from mulligan.cli import main
from tests.processes.launch import end_with

if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    main(sys.argv[2:], prog_name="mulligan")
