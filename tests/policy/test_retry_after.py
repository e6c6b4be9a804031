from __future__ import annotations

import math
import time
from collections.abc import Mapping
from datetime import timedelta
from email.message import Message
from types import SimpleNamespace
from typing import Any

import pytest

from mulligan.policy.retry_after import retry_after_us, span_us
from tests.policy.samples import NOW_US, SECOND_US

YEAR_US = 366 * 86_400 * SECOND_US


class Carrier(Exception):
    """An error with attributes."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__("slow down")
        for name, value in attributes.items():
            setattr(self, name, value)


class AnyCase(Mapping[str, str]):
    """Headers that do not tell capitals apart, as httpx and requests have them."""

    def __init__(self, values: dict[str, str]) -> None:
        self.values_by_name = {name.lower(): value for name, value in values.items()}

    def __getitem__(self, name: str) -> str:
        return self.values_by_name[name.lower()]

    def __iter__(self) -> Any:
        return iter(self.values_by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)


def mail_headers(value: str) -> Message:
    headers = Message()
    headers["retry-after"] = value
    return headers


def boto(value: Any) -> dict[str, Any]:
    return {"ResponseMetadata": {"HTTPHeaders": {"retry-after": value}}}


@pytest.mark.parametrize(
    ("error", "wait_s"),
    [
        (Carrier(retry_after=12), 12),
        (Carrier(retry_after=1.5), 1.5),
        (Carrier(retry_after="7"), 7),
        (Carrier(retry_after=timedelta(minutes=2)), 120),
        (Carrier(response=SimpleNamespace(headers=AnyCase({"Retry-After": "120"}))), 120),
        (Carrier(response=SimpleNamespace(headers={"Retry-After": "120"})), 120),
        (Carrier(response=SimpleNamespace(headers={"retry-after": "120"})), 120),
        (Carrier(response=SimpleNamespace(headers={"Retry-After": b" 120 "})), 120),
        (Carrier(response=boto("30")), 30),
        (Carrier(headers=mail_headers("9")), 9),
        (Carrier(headers={"Retry-After": "2.25"}), 2.25),
        (Carrier(headers={"Retry-After": "+3"}), 3),
        # A plain attribute speaks first, then the response, then the error's own headers.
        (Carrier(retry_after=1, response=SimpleNamespace(headers={"Retry-After": "2"}), headers={"Retry-After": "3"}), 1),
        (Carrier(response=SimpleNamespace(headers={"Retry-After": "2"}), headers={"Retry-After": "3"}), 2),
        (Carrier(retry_after="soon", headers={"Retry-After": "3"}), 3),
        (Carrier(retry_after=None, headers={"Retry-After": "3"}), 3),
    ],
)
def test_wait_is_found_where_clients_put_it(error: Exception, wait_s: float) -> None:
    """httpx, requests, botocore, aiohttp, urllib and plain attributes: no code is needed to honour them."""
    assert retry_after_us(error, NOW_US) == wait_s * SECOND_US


@pytest.mark.parametrize(
    ("date", "wait_s"),
    [
        ("Tue, 14 Nov 2023 22:14:20 GMT", 60),  # NOW_US is 22:13:20 of that day
        ("Tue, 14 Nov 2023 23:14:20 +0100", 60),
        ("Tue, 14 Nov 2023 22:14:20 -0000", 60),
        ("Tue, 14 Nov 2023 22:13:20 GMT", 0),
        ("Mon, 13 Nov 2023 22:14:20 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 366 * 86_400),
    ],
)
def test_dates_are_turned_into_waits(date: str, wait_s: float) -> None:
    """An HTTP date counts from the store's now; one in the past is no wait, one of the far future a year."""
    assert retry_after_us(Carrier(headers={"Retry-After": date}), NOW_US) == wait_s * SECOND_US


def test_date_without_a_zone_is_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """The zone of the worker's host has nothing to do with it."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert retry_after_us(Carrier(headers={"Retry-After": "Tue, 14 Nov 2023 22:14:20 -0000"}), NOW_US) == 60 * SECOND_US
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("value", [-5, "-5", -0.001, timedelta(seconds=-3)])
def test_negative_waits_are_none_at_all(value: Any) -> None:
    """A wait below zero is zero; decide puts its floor under it."""
    assert retry_after_us(Carrier(retry_after=value), NOW_US) == 0


class Shy(Exception):
    """Every attribute anybody looks for raises something else."""

    @property
    def retry_after(self) -> float:
        raise RuntimeError("no")

    @property
    def response(self) -> object:
        raise SystemExit

    @property
    def headers(self) -> dict[str, str]:
        return {"Retry-After": "4"}


def test_attributes_that_raise_are_passed_over() -> None:
    """A stranger's property must not break the failure path."""
    assert retry_after_us(Shy(), NOW_US) == 4 * SECOND_US


@pytest.mark.parametrize(
    "error",
    [
        ValueError("plain"),
        Carrier(retry_after=math.nan),
        Carrier(retry_after=math.inf),
        Carrier(retry_after=-math.inf),
        Carrier(retry_after=True),
        Carrier(retry_after="soon"),
        Carrier(retry_after=""),
        Carrier(retry_after="1e3"),
        Carrier(retry_after=["5"]),
        Carrier(retry_after="Tue, 99 Nov 2023 22:14:20 GMT"),
        Carrier(retry_after="9" * 65),
        Carrier(response=None),
        Carrier(response="text"),
        Carrier(response={}),
        Carrier(response=boto(None)),
        Carrier(response=SimpleNamespace(headers=None)),
        Carrier(headers={}),
        Carrier(headers=[("Retry-After", "5")]),
    ],
    ids=lambda error: repr(getattr(error, "retry_after", error)),
)
def test_what_cannot_be_read_is_no_wait(error: Exception) -> None:
    """Where nothing readable is carried the backoff decides."""
    assert retry_after_us(error, NOW_US) is None


def test_spans_are_cut_to_a_year() -> None:
    """The longest wait anybody can ask for; the shortest is none."""
    assert span_us(10**400) == YEAR_US
    assert retry_after_us(Carrier(retry_after="9" * 64), NOW_US) == YEAR_US
    assert [span_us(0), span_us(0.0000014), span_us(-(10**400))] == [0, 1, 0]
    assert span_us("5") is None


class Strange(type):
    """A metaclass whose types cannot be asked anything."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(cls, other: object) -> bool:
        raise RuntimeError("no")

    def __getattribute__(cls, name: str) -> Any:
        if name in ("__mro__", "__dict__"):
            raise RuntimeError("no")
        return super().__getattribute__(name)


class Lazy(Exception, metaclass=Strange):
    """Says when to come again, if one looks at what it is made of."""

    @property
    def retry_after(self) -> float:
        return 4


class Mute(Exception, metaclass=Strange):
    """Says nothing."""


def test_types_that_cannot_be_asked() -> None:
    """Which types carry a wait is remembered by which type it is, and by nothing that a type could say of itself."""
    for _ in range(2):
        assert retry_after_us(Lazy(), NOW_US) == 4 * SECOND_US
        assert retry_after_us(Mute(), NOW_US) is None
