"""Values to JSON text and back, and the rule of what may be stored at all.

One door, one rule, the same on every store: plain JSON values only, finite numbers, whole Unicode, bounded depth and size.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mulligan.core.errors import BadPayload, BadSetting, shown
from mulligan.core.groups import SEPARATOR

DEPTH_MAX = 64
PAYLOAD_BYTES_MAX = 1024 * 1024
INT_MIN, INT_MAX = -(2**63), 2**63 - 1
SMALL = 2**30
MESSAGE_CHARS_MAX = 4_000
TRACEBACK_CHARS_MAX = 8_000
NAME_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/@-]{0,127}")
KEY_CHARS_MAX = 256
GROUP_KEY_CHARS_MAX = 128
PATH_CHARS_MAX = 200  # shown of the place inside a payload

_encode = msgspec.json.Encoder().encode


class Payload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of one call."""

    args: list[Any]
    kwargs: dict[str, Any]


_payload_decoder = msgspec.json.Decoder(Payload)
_any_decoder = msgspec.json.Decoder(Any)


def encode_payload(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """The JSON text of a call's arguments, or BadPayload with the path of what cannot be stored."""
    for value in args:
        # Small numbers and plain texts, which are most of what is passed, need no path in case they are refused.
        kind = type(value)
        if not (kind is int and -SMALL < value < SMALL) and not (kind is str and value.isascii()):
            _check_arguments(args)
            break
    for name, value in kwargs.items():
        if type(name) is not str:
            raise BadPayload(f"argument {shown(name)}: its name is not a string")
        if not name.isascii():
            _check_unicode(name, f"the name of argument {name!r}")
        check_storable(value, f"argument {name!r}")
    if type(args) is not tuple or type(kwargs) is not dict:
        args, kwargs = list(args), dict(kwargs)
    return _bounded(_encode({"args": args, "kwargs": kwargs}), "the arguments")


def _check_arguments(args: Sequence[Any]) -> None:
    for position, value in enumerate(args):
        check_storable(value, f"argument {position}")


def decode_payload(text: str) -> Payload:
    """The arguments back from their text; BadPayload if the text is not what encode_payload writes."""
    try:
        return _payload_decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise BadPayload(f"the stored payload cannot be decoded: {problem}") from problem


def encode_result(value: Any) -> str | None:
    """The JSON text of a result; None (the commonest result) is stored as no text at all."""
    if value is None:
        return None
    check_storable(value, "the result")
    return _bounded(_encode(value), "the result")


def decode_result(text: str | None) -> Any:
    """A result back from its text."""
    return None if text is None else _any_decoder.decode(text)


def _bounded(encoded: bytes, what: str) -> str:
    if len(encoded) > PAYLOAD_BYTES_MAX:
        raise BadPayload(
            f"{what}: {len(encoded):,} bytes as JSON, the limit is {PAYLOAD_BYTES_MAX:,}; store the data elsewhere and pass a reference"
        )
    return encoded.decode()


def check_storable(value: Any, path: str, depth: int = 1) -> None:
    """Raises BadPayload, naming the path, unless the value is plain JSON that every store carries exactly."""
    kind = type(value)
    if kind is str:
        if not value.isascii():
            _check_unicode(value, path)
    elif kind is bool or value is None:
        return
    elif kind is int:
        if not INT_MIN <= value <= INT_MAX:
            raise BadPayload(f"{_cut(path)}: integer beyond 64 bits; pass it as a string")
    elif kind is float:
        if not math.isfinite(value):
            raise BadPayload(f"{_cut(path)}: {value} is not JSON; pass None or a string")
    elif kind is list or kind is tuple:
        _check_depth(path, depth)
        for position, item in enumerate(value):
            check_storable(item, f"{path}[{position}]", depth + 1)
    elif kind is dict:
        _check_depth(path, depth)
        for key, item in value.items():
            if type(key) is not str:
                raise BadPayload(f"{_cut(path)}: key {_cut(repr(key))} is not a string")
            _check_unicode(key, path)
            check_storable(item, f"{path}.{key}", depth + 1)
    else:
        name = f"{kind.__module__}.{kind.__qualname__}"
        raise BadPayload(f"{_cut(path)}: {name} is not JSON; pass plain dict, list, str, int, float, bool or None")


def _cut(path: str) -> str:
    """A path as a message shows it; keys can be as long as a payload, and hold anything."""
    shown = path if len(path) <= PATH_CHARS_MAX else f"{path[:PATH_CHARS_MAX]}..."
    return shown if shown.isascii() else shown.encode("utf-8", "replace").decode()


def _check_depth(path: str, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise BadPayload(f"{_cut(path)}: nested deeper than {DEPTH_MAX} levels")


def _check_unicode(text: str, path: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        raise BadPayload(f"{_cut(path)}: lone surrogate at character {problem.start}; it cannot be encoded as UTF-8") from None


def storable_text(text: str, chars_max: int) -> str:
    """The nearest text every store accepts: NUL and lone surrogates replaced, the length bounded with a mark.

    For texts that arrive from outside, such as an error's message; they must never keep an outcome from being recorded.
    """
    if len(text) > chars_max:
        text = f"{text[:chars_max]}… ({len(text):,} characters in all)"
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def check_name(name: object, what: str) -> str:
    """The name, if it is 1 to 128 characters of the allowed set; else BadSetting."""
    if not isinstance(name, str) or NAME_PATTERN.fullmatch(name) is None:
        raise BadSetting(
            f"{what} {shown(name)} is not a valid name: 1 to 128 characters of A-Z a-z 0-9 _ . : / @ -, starting with a letter, digit or _"
        )
    return name


def check_key(key: object, what: str) -> str:
    """A free text key (unique key, tag): 1 to 256 characters that every store carries."""
    if not isinstance(key, str) or not 1 <= len(key) <= KEY_CHARS_MAX:
        raise BadSetting(f"{what} must be a text of 1 to {KEY_CHARS_MAX} characters, not {shown(key)}")
    if "\0" in key or storable_text(key, KEY_CHARS_MAX) != key:
        raise BadSetting(f"{what} {shown(key)} holds a NUL or a lone surrogate, which not every store can keep")
    return key


def check_group_key(key: object, what: str) -> str:
    """A key that becomes part of a job's group (core/groups): shorter, because stores keep groups in indexes."""
    if not isinstance(key, str) or not 1 <= len(key) <= GROUP_KEY_CHARS_MAX:
        raise BadSetting(f"{what} must be a text of 1 to {GROUP_KEY_CHARS_MAX} characters, not {shown(key)}")
    if SEPARATOR in key:
        raise BadSetting(f"{what} {shown(key)} holds the control character U+001F, which separates the parts of a group")
    return check_key(key, what)
