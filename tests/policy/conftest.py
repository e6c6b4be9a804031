"""What the policy remembers between calls is forgotten between tests, so that each one shows what the code computes."""

from __future__ import annotations

import pytest

from mulligan.policy import backoff, error_info, jitter, retry


@pytest.fixture(autouse=True)
def no_memories() -> None:
    """Empties the caches of read policies, waits, jitters and ways through the code."""
    retry._thawed.clear()
    jitter.parse_jitter.cache_clear()
    error_info._digest.cache_clear()
    error_info._traces.clear()
    backoff._formula_measured.cache_clear()
