"""Workers with a planted bug, end to end: the checker convicts each from its ledger."""

from __future__ import annotations

import pytest

from tests.torture.command import Torture


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    "bug, kills, pauses, checks",
    [
        ("unfenced", 0, 10, {"FENCE"}),
        ("hasty", 10, 0, {"EFFECT"}),
        ("grabbing", 0, 0, {"OVERLAP"}),
        ("greedy", 0, 0, {"ATTEMPTS"}),
        ("impatient", 0, 0, {"EARLY"}),
        ("blind", 0, 0, {"WAKE"}),
    ],
)
def test_a_bug_in_the_store_is_convicted(file_torture: Torture, bug: str, kills: int, pauses: int, checks: set[str]) -> None:
    """The check that is meant for it complains; the command ends with 1 and keeps the ledger."""
    report = file_torture.run(jobs=190, kills=kills, pauses=pauses, slack=1, app=f"tests.torture.planted:{bug}")
    assert checks <= {check for check, count in report["by_check"].items() if count}
    assert report["ledger"] == str(file_torture.ledger)
