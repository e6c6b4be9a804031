from __future__ import annotations

import pytest

from mulligan.core.codec import KEY_CHARS_MAX, check_key, check_name
from mulligan.core.errors import BadSetting


@pytest.mark.parametrize("name", ["a", "A", "0", "_", "billing", "pkg.mod:func", "a/b@c-d.e", "x" * 128, "v1.2-rc_3"])
def test_names_of_the_allowed_set_are_accepted(name: str) -> None:
    """A valid name is returned as it is."""
    assert check_name(name, "queue") == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "a b",
        "-a",
        ".a",
        ":a",
        "/etc",
        "@a",
        "a\n",
        "a\0",
        "ä",
        "😀",
        "x" * 129,
        "x" * 10_000,
        "a\x1b[31m",
        "a{b}",
        "a*",
        None,
        7,
        b"a",
        ["a"],
    ],
)
def test_other_names_are_refused_with_the_rule(name: object) -> None:
    """The error says what was named, and what a name may be; it stays short."""
    with pytest.raises(BadSetting, match="queue .* is not a valid name: 1 to 128 characters") as caught:
        check_name(name, "queue")
    message = str(caught.value)
    assert len(message) < 300
    assert "\x1b" not in message
    assert "\n" not in message


@pytest.mark.parametrize("key", ["x", "invoice:42", "ä 😀", "x" * KEY_CHARS_MAX, " ", "a\nb"])
def test_keys_are_free_texts(key: str) -> None:
    """A key may hold anything that every store carries."""
    assert check_key(key, "unique_key") == key


@pytest.mark.parametrize("key", ["", "x" * (KEY_CHARS_MAX + 1), "a\0b", "\ud800", None, 7, b"x"])
def test_keys_that_not_every_store_carries_are_refused(key: object) -> None:
    """Empty, too long, not a text, NUL and lone surrogates."""
    with pytest.raises(BadSetting, match="unique_key"):
        check_key(key, "unique_key")
