from __future__ import annotations

import json
import math
from collections import OrderedDict
from datetime import datetime, timezone
from decimal import Decimal
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.core.codec import (
    DEPTH_MAX,
    INT_MAX,
    INT_MIN,
    PATH_CHARS_MAX,
    PAYLOAD_BYTES_MAX,
    check_name,
    check_storable,
    decode_payload,
    decode_result,
    encode_payload,
    encode_result,
    storable_text,
)
from mulligan.core.errors import BadPayload, BadSetting


class Colour(IntEnum):
    RED = 1


def nested(depth: int, kind: str = "list") -> Any:
    """A value of so many lists (or dicts) inside each other."""
    value: Any = 1
    for _ in range(depth):
        value = [value] if kind == "list" else {"k": value}
    return value


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(INT_MIN, INT_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


@given(st.lists(plain, max_size=4), st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), plain, max_size=4))
def test_what_is_accepted_comes_back_equal(args: list[Any], kwargs: dict[str, Any]) -> None:
    """Whatever passes the door is decoded to an equal value, and its text is valid, storable JSON."""
    text = encode_payload(args, kwargs)
    payload = decode_payload(text)
    assert (payload.args, payload.kwargs) == (args, kwargs)
    assert "\0" not in text
    assert json.loads(text) == {"args": args, "kwargs": kwargs}


@given(plain)
def test_results_come_back_equal(value: Any) -> None:
    """A result survives its text; None is no text at all."""
    text = encode_result(value)
    assert decode_result(text) == value
    assert (text is None) == (value is None)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_json_are_refused(value: float) -> None:
    """NaN and the infinities are refused with their path, at any depth."""
    with pytest.raises(BadPayload, match=r"argument 0: (nan|inf|-inf) is not JSON"):
        encode_payload([value], {})
    with pytest.raises(BadPayload, match=r"argument 'rate'\.a\[1\]: "):
        encode_payload([], {"rate": {"a": [0.5, value]}})
    with pytest.raises(BadPayload, match="the result: "):
        encode_result(value)


@pytest.mark.parametrize("text", ["\ud800", "ok \udfff", "\udc80x"])
def test_lone_surrogates_are_refused(text: str) -> None:
    """Half a character cannot be stored, neither as a value nor as a key, and the error says where it is."""
    with pytest.raises(BadPayload, match=r"argument 0: lone surrogate at character \d"):
        encode_payload([text], {})
    with pytest.raises(BadPayload, match="lone surrogate"):
        encode_payload([{text: 1}], {})
    with pytest.raises(BadPayload, match="the result"):
        encode_result([text])


@pytest.mark.parametrize("kind", ["list", "dict"])
def test_depth_is_bounded(kind: str) -> None:
    """Sixty-four levels are accepted, sixty-five are not."""
    assert decode_payload(encode_payload([nested(DEPTH_MAX, kind)], {})).args == [nested(DEPTH_MAX, kind)]
    with pytest.raises(BadPayload, match="nested deeper than 64 levels"):
        encode_payload([nested(DEPTH_MAX + 1, kind)], {})
    with pytest.raises(BadPayload, match="nested deeper than 64 levels"):
        encode_result(nested(DEPTH_MAX + 1, kind))


@pytest.mark.parametrize("kind", ["list", "dict"])
def test_absurd_depth_is_refused_without_exhausting_the_stack(kind: str) -> None:
    """A hundred thousand levels get the same clear answer."""
    with pytest.raises(BadPayload, match="nested deeper") as caught:
        encode_payload([nested(100_000, kind)], {})
    assert len(str(caught.value)) < PATH_CHARS_MAX + 100


def test_a_value_that_contains_itself_is_refused() -> None:
    """A cycle is just endless depth."""
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(BadPayload, match="nested deeper"):
        encode_payload([loop], {})


def test_size_is_bounded_in_bytes() -> None:
    """The limit counts encoded bytes: exactly the limit is accepted, one more is not, and the error says how large it was."""
    frame = len(encode_payload([""], {}))
    fits = "x" * (PAYLOAD_BYTES_MAX - frame)
    assert len(encode_payload([fits], {})) == PAYLOAD_BYTES_MAX
    with pytest.raises(BadPayload, match=r"1,048,577 bytes as JSON, the limit is 1,048,576"):
        encode_payload([fits + "x"], {})
    with pytest.raises(BadPayload, match="the limit"):
        encode_payload(["é" * (PAYLOAD_BYTES_MAX // 2)], {})


def test_size_of_results_is_bounded_too() -> None:
    """The same limit holds for results."""
    assert encode_result("x" * (PAYLOAD_BYTES_MAX - 2)) is not None
    with pytest.raises(BadPayload, match="the result: "):
        encode_result("x" * (PAYLOAD_BYTES_MAX - 1))


def test_integers_are_bounded_to_64_bits() -> None:
    """The whole signed 64-bit range is carried exactly; beyond it the advice is a string."""
    assert decode_payload(encode_payload([INT_MIN, INT_MAX], {})).args == [INT_MIN, INT_MAX]
    for value in (INT_MIN - 1, INT_MAX + 1, 10**5_000):
        with pytest.raises(BadPayload, match="integer beyond 64 bits; pass it as a string"):
            encode_payload([value], {})


@pytest.mark.parametrize(
    "value",
    [
        b"bytes",
        bytearray(b"x"),
        {1, 2},
        frozenset(),
        object(),
        1j,
        Decimal("1.5"),
        datetime(2024, 1, 1, tzinfo=timezone.utc),
        Colour.RED,
        OrderedDict(a=1),
        range(3),
        iter([]),
        len,
        Exception("x"),
        type("Text", (str,), {})("x"),
    ],
)
def test_other_types_are_refused_by_name(value: object) -> None:
    """Only plain JSON types pass; the error names the path and the type, and never shows the value."""
    with pytest.raises(BadPayload, match=r"argument 0\[0\]\.k: .* is not JSON; pass plain dict, list, str") as caught:
        encode_payload([[{"k": value}]], {})
    assert type(value).__qualname__ in str(caught.value)


@pytest.mark.parametrize("key", [1, None, True, 1.5, (1, 2), b"k"])
def test_keys_are_texts(key: object) -> None:
    """A dict with another kind of key would come back changed, so it is refused."""
    with pytest.raises(BadPayload, match="is not a string"):
        encode_payload([{key: 1}], {})


@pytest.mark.parametrize("name", ["\ud800", "k\udfff"])
def test_names_of_arguments_are_whole_texts(name: str) -> None:
    """Half a character in the name of an argument is refused as well."""
    with pytest.raises(BadPayload, match="lone surrogate"):
        encode_payload([], {name: 1})


def test_names_of_arguments_are_texts() -> None:
    """A mapping with another kind of name is refused, not turned into text."""
    with pytest.raises(BadPayload, match="its name is not a string"):
        encode_payload([], {1: 1})  # type: ignore[dict-item]


def test_messages_stay_short_and_printable() -> None:
    """A key as long as the payload, or with half a character, does not make a message that is too long or cannot be written."""
    with pytest.raises(BadPayload) as caught:
        encode_payload([{"k" * 10_000: {1}}], {})
    assert len(str(caught.value)) < PATH_CHARS_MAX + 200
    with pytest.raises(BadPayload) as caught:
        encode_payload([{"ok": {"\ud800" * 10: 1}}], {})
    str(caught.value).encode()


def test_tuples_are_lists() -> None:
    """A tuple is accepted and comes back as a list, as JSON knows no other."""
    assert decode_payload(encode_payload([(1, (2, 3))], {"x": ()})).args == [[1, [2, 3]]]
    assert decode_result(encode_result((1, 2))) == [1, 2]


def test_booleans_and_integers_stay_apart() -> None:
    """True is not 1 and 1 is not 1.0 after the round trip."""
    args = decode_payload(encode_payload([True, 1, 1.0, False, 0, -0.0], {})).args
    assert [type(value) for value in args] == [bool, int, float, bool, int, float]
    assert math.copysign(1, args[5]) == -1


def test_nul_is_escaped() -> None:
    """A NUL inside an argument travels as an escape, so that no store sees it raw."""
    text = encode_payload(["a\0b"], {"k\0": 1})
    assert "\0" not in text
    assert "\\u0000" in text
    assert decode_payload(text).kwargs == {"k\0": 1}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        '{"args":[]}',
        '{"args":[],"kwargs":[]}',
        '{"args":{},"kwargs":{}}',
        '{"args":[],"kwargs":{},"more":1}',
        '{"args":[NaN],"kwargs":{}}',
        "[" * 100_000,
        '{"args":' + "[" * 100_000 + "]" * 100_000 + ',"kwargs":{}}',
        '{"args":["\ud800"],"kwargs":{}}',
        "\0",
    ],
)
def test_texts_that_are_no_payload_are_refused(text: str) -> None:
    """A stored text that was not written by us is BadPayload, never another error, so that the job can be quarantined."""
    with pytest.raises(BadPayload, match="cannot be decoded"):
        decode_payload(text)


def test_check_storable_names_the_path() -> None:
    """The path leads to the value: positions in brackets, keys after dots."""
    with pytest.raises(BadPayload, match=r"^here\.a\[2\]\.b: "):
        check_storable({"a": [1, 2, {"b": {1}}]}, "here")


@given(st.text(), st.integers(1, 60))
def test_storable_text_is_always_storable(text: str, chars_max: int) -> None:
    """Any text becomes one that every store takes; what was fine and short enough is not touched."""
    kept = storable_text(text, chars_max)
    assert "\0" not in kept
    kept.encode()
    if len(text) <= chars_max:
        assert len(kept) == len(text)
        if "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text):
            assert kept == text


def test_storable_text_marks_what_it_cuts() -> None:
    """A cut text says how long it was."""
    assert storable_text("x" * 5_000, 10) == "x" * 10 + "… (5,000 characters in all)"
    assert storable_text("a\0b\ud800c", 10) == "a\N{REPLACEMENT CHARACTER}b?c"


def test_a_bad_value_that_has_no_text_is_still_refused_with_a_message() -> None:
    """An integer of 5,000 digits and a value whose repr raises are named in the message without failing it."""

    class Shy:
        def __repr__(self) -> str:
            raise RuntimeError

    for value in (10**5_000, Shy()):
        with pytest.raises(BadSetting, match="cannot be shown"):
            check_name(value, "queue")
