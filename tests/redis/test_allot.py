from __future__ import annotations

import json
from typing import Any

import redis
from hypothesis import given
from hypothesis import strategies as st

from mulligan.core.lending import allot
from mulligan.stores.redis.scripts import lua
from tests.servers import server_url

SCRIPT = f"{lua('allot')}\nlocal given = cjson.decode(ARGV[1])\nreturn allot(unpack(given))"

asks = st.tuples(st.sampled_from("ab"), st.sampled_from(["fresh", "retry", ""]), st.integers(-2, 30), st.integers(0, 40))


@given(total=st.integers(1, 60), wishes=st.lists(asks, min_size=1, max_size=9))
def test_shares_are_those_of_the_model(total: int, wishes: list[tuple[str, str, int, int]]) -> None:
    """The Lua port shares a total exactly as core.lending.allot does."""
    guaranteed, available = [wish[2] for wish in wishes], [wish[3] for wish in wishes]
    expected = allot(total, guaranteed, available, [(queue, lane) for queue, lane, _, _ in wishes])
    text: Any = json.dumps([total, guaranteed, available, [queue + lane for queue, lane, _, _ in wishes], [wish[0] for wish in wishes]])
    with redis.Redis.from_url(server_url("redis")) as client:
        assert client.eval(SCRIPT, 0, text) == expected
