from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mulligan.core.groups import DOWNSTREAM, FAIR, KEY, SEPARATOR, TASK, behind, group_of, is_group, part_of, tenant_of

# Characters on both sides of the separator, and some that are longer in UTF-8.
TEXTS = st.text(st.sampled_from("ab \x01\x1e!~ä\U0001f600"), min_size=1, max_size=4)
PARTS = st.tuples(*[st.none() | TEXTS] * 4)


@given(PARTS)
def test_a_group_is_made_of_its_parts(parts: tuple[str | None, str | None, str | None, str | None]) -> None:
    """What was given comes back, an absent part as an empty text; without any part there is no group."""
    group = group_of(*parts)
    assert (group is None) == (not any(parts))
    assert [part_of(group, part) for part in (FAIR, DOWNSTREAM, TASK, KEY)] == [part or "" for part in parts]
    assert tenant_of(group) == (parts[FAIR] or "")
    assert group is None or is_group(group)


@given(PARTS, PARTS)
def test_behind_lies_between_two_tenants(
    some: tuple[str | None, str | None, str | None, str | None], others: tuple[str | None, str | None, str | None, str | None]
) -> None:
    """A turn that goes on behind a tenant meets no group of it again, and skips none of any other."""
    first, second = group_of(*some), group_of(*others)
    if first is None or second is None:
        return
    mark = behind(tenant_of(first))
    assert first < mark
    if tenant_of(first) != tenant_of(second):
        assert (second > mark) == (second > first)


def test_texts_that_are_no_groups() -> None:
    """A group has four parts, never more or fewer."""
    assert is_group(SEPARATOR * 3)
    assert not any(is_group(text) for text in ("", "tenant", SEPARATOR * 2, SEPARATOR * 4))
