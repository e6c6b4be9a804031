from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.conftest import BACKENDS, make_store
from tests.model.machine import StoreMachine

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
torture = [pytest.mark.torture, pytest.mark.timeout(3_600)]


# A run takes seconds; a failure is made small before it is shown, which takes minutes.
@pytest.mark.parametrize(
    "examples", [pytest.param(40, marks=pytest.mark.timeout(3_600 if LONG else 900)), pytest.param(400, marks=torture)]
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_store_does_what_the_model_does(backend: str, examples: int, tmp_path: Path) -> None:
    """Any sequence of calls gives the same answers and the same state as the memory model, and keeps the invariants (O01, S17)."""
    numbers = itertools.count()

    def machine() -> StoreMachine:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        return StoreMachine(lambda clock: make_store(backend, folder, clock))

    size = {} if LONG else {"max_examples": examples, "stateful_step_count": 40}
    run_state_machine_as_test(machine, settings=settings(**size, suppress_health_check=list(HealthCheck)))  # type: ignore[arg-type]
