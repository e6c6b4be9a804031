"""A job's group: what a claim must know of it beyond queue, lane and priority, as one text that is opaque to most of the code.

Jobs of one group wait in one line. A group is made of four parts, any of which may be empty:

    whom the job is for (fair key) · what it depends on (downstream) · its task, where that is limited · its concurrency key

A job for which all of them are empty has no group (None), and nothing of what groups cost. Groups sort as texts, by code points,
which is the order of their bytes in UTF-8 too; those of one tenant (fair key) stand together, because its name comes first.
"""

from __future__ import annotations

FAIR, DOWNSTREAM, TASK, KEY = range(4)  # the parts, in their order
SEPARATOR = "\x1f"
# Ranges of groups for a claim: what lies behind all groups of one tenant, and before everything.
_BEHIND = " "
BEGINNING = ""


def group_of(fair_key: str | None, downstream: str | None, task: str | None, key: str | None) -> str | None:
    """The group of a job with these parts; None if it has none of them."""
    parts = (fair_key or "", downstream or "", task or "", key or "")
    return SEPARATOR.join(parts) if any(parts) else None


def part_of(group: str | None, part: int) -> str:
    """One part of a group; empty where it has none."""
    return "" if group is None else group.split(SEPARATOR)[part]


def tenant_of(group: str | None) -> str:
    """Whom a group is for. Everything without a fair key is one tenant, with an empty name."""
    return "" if group is None else group[: group.index(SEPARATOR)]


def behind(tenant: str) -> str:
    """A text that is greater than every group of this tenant, and less than those of every tenant after it."""
    return tenant + _BEHIND


def is_group(text: str) -> bool:
    """Whether a text has the form of a group."""
    return text.count(SEPARATOR) == KEY
