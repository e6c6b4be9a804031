from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mulligan.core.lending import allot
from mulligan.stores.postgres import PostgresStore
from tests.postgres.conftest import Raw

ASKS = st.lists(
    st.tuples(st.integers(-1, 9), st.integers(0, 12), st.sampled_from(["a", "b", "c"]), st.sampled_from(["fresh", "retry", None])),
    min_size=1,
    max_size=9,
)


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(total=st.integers(1, 40), asks=ASKS)
def test_the_server_shares_out_like_the_model(
    store: PostgresStore, raw: Raw, total: int, asks: list[tuple[int, int, str, str | None]]
) -> None:
    """The function in the server and core/lending give every ask the same share, whatever is asked and available."""
    guaranteed, available, queues, lanes = (list(column) for column in zip(*asks, strict=True))
    [[shares]] = raw.rows(
        "SELECT {s}.allot(%s, %s::bigint[], %s::bigint[], %s::text[], %s::text[])", (total, guaranteed, available, queues, lanes)
    )
    assert shares == allot(total, guaranteed, available, list(zip(queues, lanes, strict=True)))
