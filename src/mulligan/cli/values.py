"""Values as they are typed on a command line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

import click

from mulligan.core.codec import DEPTH_MAX
from mulligan.core.errors import BadPayload, BadSetting, shown

_KEYWORD = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


NUMBER_WORDS = ("NaN", "Infinity", "-Infinity")  # to Python's decoder these are numbers; to JSON they are nothing, so they are text
NONE = "none"  # what is typed where no limit is a value of its own


def or_none(kind: type[int] | type[float]) -> Callable[[click.Context, click.Parameter, str | None], int | float | str | None]:
    """The callback of an option that takes a number or the word "none", which is passed on as NONE."""

    def convert(ctx: click.Context, param: click.Parameter, value: str | None) -> int | float | str | None:
        if value is None or value.lower() == NONE:
            return value and NONE
        try:
            return kind(value)
        except ValueError:
            raise click.BadParameter(f"{value!r} is neither a number nor {NONE}", ctx, param) from None

    return convert


def json_or_text(typed: str) -> Any:
    """The JSON value that was typed, or the text itself where it is none. What begins as JSON must be JSON to its end."""
    if typed in NUMBER_WORDS:
        return typed
    try:
        return _json(typed)
    except json.JSONDecodeError as problem:
        if typed.lstrip()[:1] in ("{", "[", '"'):
            raise BadPayload(f"{shown(typed)} is not JSON: {problem}; to pass it as text, quote it as a JSON string") from None
        return typed


def _json(text: str) -> Any:
    """Takes more than JSON has (NaN, lone surrogates), so that the check of all arguments can say what is wrong with it, and where."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise BadPayload(f"nested deeper than {DEPTH_MAX} levels") from None
    except ValueError:
        raise BadPayload("an integer is beyond 64 bits; pass it as a string") from None


def call_arguments(typed: tuple[str, ...], kwargs_json: str | None) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments from `42 name=value` and --kwargs. A text that looks like a keyword is quoted as JSON."""
    args: list[Any] = []
    kwargs = _object(kwargs_json)
    for one in typed:
        match = _KEYWORD.fullmatch(one)
        if match is None:
            args.append(json_or_text(one))
        elif match[1] in kwargs:
            raise BadSetting(f"the argument {match[1]} is given twice")
        else:
            kwargs[match[1]] = json_or_text(match[2])
    return args, kwargs


def _object(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        value = _json(text)
    except json.JSONDecodeError as problem:
        raise BadSetting(f"--kwargs is not JSON: {problem}") from None
    if not isinstance(value, dict):
        raise BadSetting('--kwargs must be a JSON object, for example {"name": 1}')
    return value


def moment(text: str | None) -> datetime | None:
    """An ISO 8601 time; whether it has a zone is checked where every time is."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise BadSetting(f"--eta takes an ISO 8601 time with a zone, for example 2030-01-31T12:00:00Z, not {text!r}") from None
