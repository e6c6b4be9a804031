"""The log of a worker process: on stderr, one line per record for people, or one JSON object per line for programs."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from mulligan.cli.output import clean
from mulligan.core.clock import us_to_datetime

LEVELS = ("debug", "info", "warning", "error", "critical")
FIELDS = ("job_id", "queue", "task", "attempt", "worker")  # what mulligan's own records carry beside their text


class TextFormatter(logging.Formatter):
    """Time in UTC, level, logger, text. A traceback keeps its lines; control characters are shown by their escapes."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_at(record)} {record.levelname:<8} {record.name}: {clean(record.getMessage())}"
        return "\n".join([line, *(f"    {clean(text)}" for text in _trace(self, record))])


class JsonFormatter(logging.Formatter):
    """One object per record, with the job's fields where the record has them."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "at": _at(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= {name: getattr(record, name) for name in FIELDS if getattr(record, name, None)}
        trace = _trace(self, record)
        if trace:
            fields["traceback"] = "\n".join(trace)
        return json.dumps(fields, default=str)


def _at(record: logging.LogRecord) -> str:
    return us_to_datetime(round(record.created * 1e6)).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    parts = []
    if record.exc_info:
        parts.append(formatter.formatException(record.exc_info))
    if record.stack_info:
        parts.append(formatter.formatStack(record.stack_info))
    return [line for part in parts for line in part.splitlines()]


def set_up_logging(level: str, *, as_json: bool) -> None:
    """Sends everything of this level and above to stderr. What the app's own module has set up before is replaced."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("asyncio").setLevel(logging.WARNING)  # its debug lines tell of selectors, not of jobs
