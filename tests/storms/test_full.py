"""The storms of the guide in full size, as `make storms` plays them: every bound holds."""

from __future__ import annotations

import pytest
from benchmarks.storms.__main__ import SCENES


@pytest.mark.scale
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("name", SCENES)
def test_every_bound_holds_in_full_size(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """What the scene must keep, it keeps."""
    caplog.set_level("ERROR", logger="mulligan")
    outcome = SCENES[name]()
    assert any(figure.at_most is not None for figure in outcome.figures)
    assert [figure for figure in outcome.figures if not figure.holds] == []
