"""An exception as stored text: type, message, code, the end of its traceback, and a fingerprint by which equal errors group.

Every step copes with hostile exceptions: a message that raises, that is huge, that holds NUL or lone surrogates, a chain of causes
that bites its tail. Local variables are never read, since they hold secrets.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, TracebackType
from typing import NamedTuple

from mulligan.core.codec import MESSAGE_CHARS_MAX, TRACEBACK_CHARS_MAX, storable_text
from mulligan.core.errors import Cancel, Fail, Retry, Snooze
from mulligan.core.job import ErrorInfo

TYPE_CHARS_MAX = 200
CODE_CHARS_MAX = 200
CHAIN_MAX = 5  # causes shown, nearest first
FRAMES_MAX = 20  # innermost frames shown of each
SUMMARY_CHARS_MAX = 500  # of each message inside a traceback
FINGERPRINT_FRAMES = 3
_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"
_CUT = "(earlier exceptions are not shown)\n"
_MACHINERY = frozenset({"asyncio", "concurrent", "mulligan"})  # the packages that stand between a worker and a handler
_SIGNALS = (Retry, Snooze, Fail, Cancel)
_SIGNALS_MODULE = Retry.__module__

Frame = tuple[str, str, str, int]  # module, function, file, line


class Trace(NamedTuple):
    """Where something was raised, in words."""

    codes: tuple[CodeType, ...]  # of its frames; as long as they are kept, their ids are their own
    text: str  # the frames in Python's own form, made storable; empty without any
    fingerprint: str  # of what was raised and the innermost frames


# In a storm of failures the same ways through the code come again and again.
_traces: dict[tuple[str | int, ...], Trace] = {}
TRACES_MAX = 1_000
TRACE_FRAMES_MAX = 50  # of one that is kept
_names: dict[int, tuple[type, str]] = {}  # of what was raised, by identity
NAMES_MAX = 1_000


def describe(error: BaseException, at_us: int) -> ErrorInfo:
    """The error as the job keeps it."""
    name = _type_name(type(error))
    message = storable_text(_message(error), MESSAGE_CHARS_MAX)
    trace = _trace(name, error.__traceback__)
    text = None
    if trace.text:
        text = trace.text + (f"{name}: {message[:SUMMARY_CHARS_MAX]}\n" if message else f"{name}\n")  # storable, as its parts are
        if error.__cause__ is not None or error.__context__ is not None or isinstance(error, BaseExceptionGroup):
            text = _tail(_whole_traceback(error, text))
        elif len(text) > TRACEBACK_CHARS_MAX:
            text = _tail(text)
    return ErrorInfo(name, message, _code(error), text, trace.fingerprint, at_us)


def reported(
    message: str, at_us: int, *, exception_type: str = "", code: str | int | None = None, traceback: str | None = None
) -> ErrorInfo:
    """An error that somebody tells instead of raising it, made storable."""
    name = storable_text(exception_type or "Reported", TYPE_CHARS_MAX)
    return ErrorInfo(
        type=name,
        message=storable_text(message, MESSAGE_CHARS_MAX),
        code=None if code is None else storable_text(str(code), CODE_CHARS_MAX),
        traceback=None if traceback is None else _tail(traceback),
        fingerprint=fingerprint(name, []),
        at_us=at_us,
    )


def fingerprint(name: str, places: list[str]) -> str:
    """A short, stable hash of what was raised and where; the message is left out, since it often holds an id."""
    return _digest("\n".join([name, *places]))


@lru_cache(maxsize=1_000)
def _digest(text: str) -> str:
    from hashlib import blake2b

    return blake2b(text.encode("utf-8", "replace"), digest_size=6).hexdigest()


def _type_name(kind: type) -> str:
    known = _names.get(id(kind))
    if known is None:
        if len(_names) >= NAMES_MAX:
            _names.clear()
        known = _names[id(kind)] = kind, _full_name(kind)
    return known[1]


def _full_name(kind: type) -> str:
    module = str(kind.__module__)
    if module == _SIGNALS_MODULE and kind in _SIGNALS:
        return f"mulligan.{kind.__name__}"
    return storable_text(kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}", TYPE_CHARS_MAX)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except (Exception, SystemExit) as problem:  # noqa: BLE001 - the text of a stranger
        return f"(the message cannot be read: str() raised {type(problem).__name__})"


def _code(error: BaseException) -> str | None:
    try:
        code = getattr(error, "code", None)
        if isinstance(code, bool) or not isinstance(code, (str, int)):
            return None
        return storable_text(str(code), CODE_CHARS_MAX)
    except (Exception, SystemExit):  # noqa: BLE001 - a property may raise anything
        return None


def _trace(name: str, trace: TracebackType | None) -> Trace:
    """The way of a traceback; put in words once, and then known by what was raised, its code objects and the steps in them."""
    steps: list[str | int] = [name]
    step = trace
    while step is not None:
        steps.append(id(step.tb_frame.f_code))
        steps.append(step.tb_lasti)
        step = step.tb_next
    key = tuple(steps)
    known = _traces.get(key)
    if known is None:
        known = _read(name, trace)
        if len(known.codes) <= TRACE_FRAMES_MAX:
            if len(_traces) >= TRACES_MAX:
                _traces.clear()
            _traces[key] = known
    return known


def _read(name: str, trace: TracebackType | None) -> Trace:
    frames = _frames(trace)
    lines = ["Traceback (most recent call last):\n"] if frames else []
    if len(frames) > FRAMES_MAX:
        lines.append(f"  … {len(frames) - FRAMES_MAX:,} outer frames\n")
    lines += [_place(file, line, function) for _, function, file, line in frames[-FRAMES_MAX:]]
    codes = []
    while trace is not None:
        codes.append(trace.tb_frame.f_code)
        trace = trace.tb_next
    places = [f"{module}:{function}" for module, function, _, _ in frames[-FINGERPRINT_FRAMES:]]
    text = "".join(lines)
    return Trace(tuple(codes), storable_text(text, len(text)), fingerprint(name, places))


def _frames(trace: TracebackType | None) -> list[Frame]:
    """The frames of a traceback, outermost first, without the machinery that called the handler."""
    frames: list[Frame] = []
    machinery = 0
    while trace is not None:
        code = trace.tb_frame.f_code
        module = trace.tb_frame.f_globals.get("__name__")
        name = module if isinstance(module, str) else "?"
        if machinery == len(frames) and name.partition(".")[0] in _MACHINERY:
            machinery += 1
        frames.append((name, code.co_qualname, code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    return frames[machinery:] or frames  # where the machinery itself failed, it is what there is to see


def _tail(text: str) -> str:
    """The end of a text, where a traceback says what happened."""
    if len(text) > TRACEBACK_CHARS_MAX:
        text = f"… ({len(text):,} characters in all)\n{text[-TRACEBACK_CHARS_MAX:]}"
    return storable_text(text, len(text))


def _whole_traceback(error: BaseException, text: str) -> str:
    """The error and what led to it in Python's own form; `text` is its own part."""
    if isinstance(error, BaseExceptionGroup):
        text += _parts(error)
    return "".join([*reversed(list(_links(error))), text])


def _links(error: BaseException) -> Iterator[str]:
    """The causes of an error in Python's own form, nearest first, at most CHAIN_MAX in all, each once; read backwards, a traceback."""
    seen = {id(error)}
    while True:
        cause, context = error.__cause__, None if error.__suppress_context__ else error.__context__
        before = context if cause is None else cause
        if before is None:
            return
        yield _CONTEXT if cause is None else _CAUSE
        if id(before) in seen or len(seen) >= CHAIN_MAX:
            yield _CUT
            return
        error = before
        seen.add(id(error))
        frames = _trace(_type_name(type(error)), error.__traceback__).text
        yield frames + _summary_of(error) + (_parts(error) if isinstance(error, BaseExceptionGroup) else "")


def _parts(group: BaseExceptionGroup[BaseException]) -> str:
    return "".join(f"  - {_summary_of(part)}" for part in group.exceptions[:CHAIN_MAX])


def _summary_of(error: BaseException) -> str:
    return _summary(_type_name(type(error)), _message(error))


def _summary(name: str, message: str) -> str:
    return f"{name}: {message[:SUMMARY_CHARS_MAX]}\n" if message else f"{name}\n"


def _place(file: str, line: int, function: str) -> str:
    """One frame in Python's own form."""
    from linecache import getline

    source = getline(file, line).strip()[:SUMMARY_CHARS_MAX]
    return f'  File "{file}", line {line}, in {function}\n' + (f"    {source}\n" if source else "")
