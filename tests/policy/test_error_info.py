from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from mulligan.core.codec import MESSAGE_CHARS_MAX, TRACEBACK_CHARS_MAX
from mulligan.core.errors import Cancel, Fail, Retry, Snooze
from mulligan.policy import error_info
from mulligan.policy.error_info import describe, fingerprint, reported
from tests.policy.samples import NOW_US, raised


class Declined(Exception):
    """An error of the user's own."""

    code: Any = 402


def charge(invoice: int) -> None:
    raise Declined(f"invoice {invoice} was declined")


def caught(function: Callable[..., Any], *arguments: Any) -> BaseException:
    try:
        function(*arguments)
    except BaseException as error:  # noqa: BLE001 - that is the point
        return error
    raise AssertionError("it did not raise")


def trace_of(error: BaseException) -> str:
    text = describe(error, NOW_US).traceback
    assert text is not None
    return text


def test_error_becomes_text() -> None:
    """Type, message, code, place and time, as M01 asks for them."""
    info = describe(caught(charge, 4), NOW_US)
    assert info.type == f"{__name__}.Declined"
    assert info.message == "invoice 4 was declined"
    assert info.code == "402"
    assert info.at_us == NOW_US
    assert info.traceback is not None
    lines = info.traceback.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].startswith(f'  File "{__file__}", line ')
    assert lines[1].endswith(", in caught")
    assert lines[2] == "    function(*arguments)"
    assert lines[3].endswith(", in charge")
    assert lines[4] == '    raise Declined(f"invoice {invoice} was declined")'
    assert lines[5:] == [f"{__name__}.Declined: invoice 4 was declined"]
    assert info.traceback.endswith("declined\n")


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (ValueError("x"), "ValueError"),
        (Retry("x"), "mulligan.Retry"),
        (Snooze(3), "mulligan.Snooze"),
        (Fail("x"), "mulligan.Fail"),
        (Cancel("x"), "mulligan.Cancel"),
        (TimeoutError(), "TimeoutError"),
        (asyncio.CancelledError(), "asyncio.exceptions.CancelledError"),
        (type("N" * 300, (Exception,), {"__module__": "m"})(), "m." + "N" * 198 + "… (302 characters in all)"),
        (type("Local", (Exception,), {"__module__": 5})(), "5.Local"),
    ],
)
def test_types_are_named_in_full(error: BaseException, name: str) -> None:
    """A builtin by its name, anything else with its module, our own signals as users import them."""
    assert describe(error, NOW_US).type == name


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("404", "404"),
        (404, "404"),
        (None, None),
        (True, None),
        (4.5, None),
        (["x"], None),
        ("c" * 300, "c" * 200 + "… (300 characters in all)"),
    ],
)
def test_codes_are_texts_or_whole_numbers(code: Any, expected: str | None) -> None:
    """error.code is Fail's, or the exception's own if it is a text or a whole number."""
    error = Declined("no")
    error.code = code
    assert describe(error, NOW_US).code == expected
    assert describe(Fail("no", code=code), NOW_US).code == expected
    assert describe(ValueError("no"), NOW_US).code is None


def test_code_property_that_raises_is_no_code() -> None:
    """A property may raise anything."""

    class Odd(Exception):
        @property
        def code(self) -> str:
            raise SystemExit

    assert describe(Odd(), NOW_US).code is None


@pytest.mark.parametrize("problem", [ValueError, SystemExit, RecursionError])
def test_message_that_raises_is_told(problem: type[BaseException]) -> None:
    """str(error) is a stranger's code too."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise problem

    info = describe(raised(Mute), NOW_US)
    assert info.message == f"(the message cannot be read: str() raised {problem.__name__})"
    assert info.traceback is not None


def test_huge_and_unstorable_messages_are_made_storable() -> None:
    """Ten megabytes, NUL and lone surrogates: the failure can be recorded all the same."""
    info = describe(raised(ValueError("\0\ud800x" + "y" * 10_000_000)), NOW_US)
    assert len(info.message) < MESSAGE_CHARS_MAX + 50
    assert info.message.startswith("\N{REPLACEMENT CHARACTER}?x" + "y" * 100)
    assert info.message.endswith("… (10,000,003 characters in all)")
    assert info.traceback is not None
    assert "\0" not in info.traceback
    assert info.traceback.encode()
    assert "y" * 497 in info.traceback
    assert "y" * 498 not in info.traceback


def test_locals_are_never_captured() -> None:
    """A secret in a local variable stays where it is."""

    def pay() -> None:
        token = f"canary-{NOW_US}"
        raise ValueError(len(token))

    info = describe(caught(pay), NOW_US)
    assert f"canary-{NOW_US}" not in repr(info)


def test_error_without_a_traceback_has_none() -> None:
    """A signal that was returned was never raised."""
    info = describe(Fail("no"), NOW_US)
    assert info.traceback is None
    assert info.fingerprint == fingerprint("mulligan.Fail", [])


def test_equal_errors_share_a_fingerprint() -> None:
    """What and where, not which: messages with ids fall into one group, other places and types into others."""

    def elsewhere() -> None:
        charge(3)

    first, second = describe(caught(charge, 1), NOW_US), describe(caught(charge, 2), NOW_US + 5)
    assert first.fingerprint == second.fingerprint
    assert first.fingerprint != describe(caught(elsewhere), NOW_US).fingerprint
    assert first.fingerprint == fingerprint(f"{__name__}.Declined", [f"{__name__}:caught", f"{__name__}:charge"])
    assert fingerprint("A", ["m:f"]) == "55a014336d8e"
    assert fingerprint("A\ud800", []) == fingerprint("A?", [])


def test_equal_places_keep_types_apart() -> None:
    """What is known of a way through the code is known for one type: another one that is raised there has its own name and fingerprint."""

    def either(kind: type[Exception]) -> None:
        raise kind("x")

    for _ in range(2):
        for kind in (ValueError, KeyError):
            info = describe(caught(either, kind), NOW_US)
            assert info.type == kind.__name__
            assert info.fingerprint == fingerprint(kind.__name__, [f"{__name__}:caught", f"{__name__}:{either.__qualname__}"])


def test_ways_that_are_known_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ever new ways through the code are forgotten again, and each is told as it was."""
    monkeypatch.setattr(error_info, "TRACES_MAX", 3)
    for number in range(10):
        assert describe(raised(type(f"E{number}", (Exception,), {})("x")), NOW_US).type == f"{__name__}.E{number}"
        assert len(error_info._traces) <= 3


def test_frames_are_made_storable() -> None:
    """The names in a traceback are a stranger's texts as well."""
    scope: dict[str, Any] = {"__name__": "m"}
    exec(compile("def call():\n    raise ValueError(1)", "a\udcff.py", "exec"), scope)
    assert 'File "a?.py", line 2, in call' in trace_of(caught(scope["call"]))


def test_long_frames_are_cut_to_their_end() -> None:
    """Twenty frames with long names are more than is kept of a traceback."""
    scope: dict[str, Any] = {"__name__": "m"}
    exec(compile("def call(depth):\n    return call(depth - 1) if depth else int('x')", "f" * 1_000, "exec"), scope)
    error = caught(scope["call"], 30)
    text = trace_of(error)
    assert text.startswith("… (")
    assert text.endswith(f"in call\nValueError: {error}\n")
    assert len(text) < TRACEBACK_CHARS_MAX + 50


def test_fingerprint_looks_at_the_innermost_frames() -> None:
    """However deep the way there was, the last three frames tell the place."""

    def dig(depth: int) -> None:
        if depth:
            dig(depth - 1)
        else:
            charge(1)

    prints = {describe(caught(dig, depth), NOW_US).fingerprint for depth in (2, 5, 50)}
    assert prints == {fingerprint(f"{__name__}.Declined", [f"{__name__}:{dig.__qualname__}"] * 2 + [f"{__name__}:charge"])}


def test_deep_tracebacks_show_their_end() -> None:
    """Twenty frames are shown, the innermost ones."""

    def dig(depth: int) -> None:
        if depth:
            dig(depth - 1)
        else:
            charge(1)

    text = trace_of(caught(dig, 500))
    assert text.count("  File ") == 20
    assert text.splitlines()[1] == "  … 483 outer frames"
    assert "in charge\n" in text
    exact = trace_of(caught(dig, 17))
    assert exact.count("  File ") == 20
    assert "outer frames" not in exact


def test_causes_are_told_first() -> None:
    """An error raised from another shows both, in Python's own order and words."""

    def from_cause() -> None:
        try:
            charge(1)
        except Declined as declined:
            raise ValueError("second") from declined

    def in_handler() -> None:
        try:
            charge(1)
        except Declined:
            raise ValueError("second")  # noqa: B904

    def without() -> None:
        try:
            charge(1)
        except Declined:
            raise ValueError("second") from None

    text = trace_of(caught(from_cause))
    first, second = text.split("\nThe above exception was the direct cause of the following exception:\n\n")
    assert first.endswith("Declined: invoice 1 was declined\n")
    assert ", in charge\n" in first
    assert second.startswith("Traceback (most recent call last):\n")
    assert second.endswith("ValueError: second\n")
    text = trace_of(caught(in_handler))
    first, second = text.split("\nDuring handling of the above exception, another exception occurred:\n\n")
    assert first.endswith("Declined: invoice 1 was declined\n")
    assert second.endswith("ValueError: second\n")
    assert "Declined" not in trace_of(caught(without)).replace("except Declined", "")


def test_chain_that_bites_its_tail_ends() -> None:
    """A cause of itself must not hang the worker."""
    one, two = raised(ValueError("one")), raised(KeyError("two"))
    one.__cause__, two.__cause__ = two, one
    text = trace_of(one)
    assert text.startswith("(earlier exceptions are not shown)\n\nThe above exception was the direct cause")
    assert [text.count("ValueError: one"), text.count("KeyError: 'two'")] == [1, 1]
    own = raised(ValueError("own"))
    own.__cause__ = own
    assert trace_of(own).count("ValueError: own") == 1


def test_long_chains_are_cut() -> None:
    """Five links are shown, the nearest ones."""
    errors = [raised(ValueError(f"link {number}")) for number in range(10_000)]
    for error, before in pairwise(errors):
        error.__cause__ = before
    text = trace_of(errors[0])
    assert text.startswith("(earlier exceptions are not shown)\n")
    assert [f"link {number}\n" in text for number in range(6)] == [True] * 5 + [False]
    whole = trace_of(errors[-5])
    assert "not shown" not in whole
    assert whole.count("ValueError: link") == 5


def test_cause_without_traceback_is_one_line() -> None:
    """A cause that was made but never raised has no frames."""
    error = raised(ValueError("second"))
    error.__cause__ = KeyError()
    assert trace_of(error).startswith("KeyError\n\nThe above")


def test_groups_name_their_parts() -> None:
    """A task group's error says what was in it."""
    parts = [ValueError(f"part {number}") for number in range(7)]
    text = trace_of(raised(ExceptionGroup("many", parts)))
    assert text.splitlines()[-6:] == ["ExceptionGroup: many (7 sub-exceptions)", *[f"  - ValueError: part {number}" for number in range(5)]]


def test_machinery_before_the_handler_is_left_out() -> None:
    """The frames of worker, event loop and thread pool say nothing about the user's error; where they are all there is, they stay."""
    scope: dict[str, Any] = {"__name__": "mulligan.worker.perform"}
    exec("def call(function, *arguments):\n    return function(*arguments)\ndef step(*arguments):\n    return call(*arguments)", scope)

    def through() -> None:
        charge(1)

    def try_call(*arguments: Any) -> BaseException:
        error = caught(scope["step"], scope["call"], *arguments)
        assert error.__traceback__ is not None
        return error.with_traceback(error.__traceback__.tb_next)  # without this file's own outer frame

    text = trace_of(try_call(through))
    assert "perform" not in text
    assert [line.rpartition(" in ")[2] for line in text.splitlines() if line.startswith("  File")] == [through.__qualname__, "charge"]
    inner = trace_of(try_call(lambda: scope["call"](through)))
    assert ", in call\n" in inner  # only what stands before the handler is machinery
    alone = trace_of(try_call(int, "x"))
    assert '  File "<string>", line 4, in step\n' + '  File "<string>", line 2, in call\n' * 2 in alone


def test_module_without_a_name_is_survived() -> None:
    """Code that was made at run time may have no module name."""
    scope: dict[str, Any] = {"__name__": 5}
    exec("def call():\n    raise ValueError(1)", scope)
    error = caught(scope["call"])
    assert error.__traceback__ is not None
    info = describe(error.with_traceback(error.__traceback__.tb_next), NOW_US)
    assert info.fingerprint == fingerprint("ValueError", ["?:call"])


def test_long_tracebacks_keep_their_end() -> None:
    """The end of a traceback says what happened, so the begin is cut."""
    info = reported("x", NOW_US, traceback="begin" + "t" * TRACEBACK_CHARS_MAX + "end")
    assert info.traceback == f"… ({TRACEBACK_CHARS_MAX + 8:,} characters in all)\n" + "t" * (TRACEBACK_CHARS_MAX - 3) + "end"
    exact = reported("x", NOW_US, traceback="t" * TRACEBACK_CHARS_MAX)
    assert exact.traceback == "t" * TRACEBACK_CHARS_MAX


def test_reported_errors_are_made_storable() -> None:
    """What a client tells by hand passes the same door."""
    info = reported("no\0way", NOW_US, exception_type="Net\0Error", code=7, traceback="a\0b")
    mark = "\N{REPLACEMENT CHARACTER}"
    assert (info.type, info.message, info.code, info.traceback) == (f"Net{mark}Error", f"no{mark}way", "7", f"a{mark}b")
    assert info.fingerprint == fingerprint(f"Net{mark}Error", [])
    assert info.at_us == NOW_US
    plain = reported("x" * 5_000, NOW_US, code="c" * 300)
    assert (plain.type, plain.traceback) == ("Reported", None)
    assert plain.message == "x" * MESSAGE_CHARS_MAX + "… (5,000 characters in all)"
    assert plain.code == "c" * 200 + "… (300 characters in all)"
    assert reported("x", NOW_US).code is None
    assert len(reported("x", NOW_US, exception_type="t" * 300).type) == 200 + len("… (300 characters in all)")


def test_types_that_cannot_be_hashed_have_names() -> None:
    """A stranger's metaclass may forbid it, or say that all types are equal."""

    class Equal(type):
        __hash__ = None  # type: ignore[assignment]

        def __eq__(cls, other: object) -> bool:
            return True

    class First(Exception, metaclass=Equal):
        pass

    class Second(Exception, metaclass=Equal):
        pass

    for _ in range(2):
        assert [describe(error, NOW_US).type.rpartition(".")[2] for error in (First(), Second())] == ["First", "Second"]
