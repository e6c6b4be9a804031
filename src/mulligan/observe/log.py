"""Log lines from events, through the standard logging module, under `mulligan.jobs`.

Each line carries job_id, queue, task, attempt and worker as `extra` fields. Nothing is formatted for a level that is off.
"""

from __future__ import annotations

import logging
from typing import Any

from mulligan.core.codec import storable_text
from mulligan.core.events import Event

log = logging.getLogger("mulligan.jobs")


def one_line(text: object) -> str:
    """Text from outside, made safe for a log or a terminal: one line, no control characters."""
    clean = storable_text(str(text), 500)
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in clean)


class LogWriter:
    """The bus subscriber that writes the log."""

    def __init__(self) -> None:
        self._writers = {
            "PROCESSING": self._processing,
            "RETRY_SCHEDULED": self._retry_scheduled,
            "FAILED": self._failed,
            "CRASHED": self._crashed,
            "LEASE_LOST": self._lease_lost,
            "REQUEUED": self._requeued,
            "CANCELLED": self._cancelled,
            "RELEASED": self._released,
            "BREAKER_OPENED": self._downstream,
            "BREAKER_HALF_OPEN": self._downstream,
            "BREAKER_CLOSING": self._downstream,
            "BREAKER_CLOSED": self._downstream,
            "DOWNSTREAM_HELD": self._downstream,
            "BUDGET_SPENT": self._budget,
            "BUDGET_RECOVERED": self._budget,
            "STORE_DEGRADED": self._store_degraded,
            "STORE_RECOVERED": self._store_recovered,
        }

    @property
    def kinds(self) -> tuple[str, ...]:
        """The events that have a line."""
        return tuple(self._writers)

    def listens_to_rows(self, name: str) -> bool:
        """The start of a retry has a line; a fresh one's, and a failure that is tried again, only where details are wanted."""
        return log.isEnabledFor(logging.INFO if name == "restarted" else logging.DEBUG)

    def on_event(self, event: Event) -> None:
        """Writes the line of this event."""
        self._writers[event.kind](event)

    def _write(self, level: int, event: Event, text: str, *values: object) -> None:
        if log.isEnabledFor(level):
            fields: dict[str, Any] = {
                "job_id": event.job_id,
                "queue": event.queue,
                "task": event.task,
                "attempt": event.attempt,
                "worker": event.worker,
            }
            log.log(level, text, *values, extra=fields)

    def _processing(self, event: Event) -> None:
        if event.detail.get("is_retry"):
            self._write(logging.INFO, event, "Processing RETRY job: %s %s (attempt %d)", event.task, event.job_id, event.attempt)
        elif log.isEnabledFor(logging.DEBUG):
            self._write(logging.DEBUG, event, "Processing regular job: %s %s", event.task, event.job_id)

    def _retry_scheduled(self, event: Event) -> None:
        # The attempt named is the one that is planned, as the OmniQ design prints it.
        text = "Task retry scheduled: %s (attempt %d) in %.1fs"
        self._write(logging.DEBUG, event, text, event.job_id, event.attempt + 1, event.detail.get("delay_s", 0.0))

    def _failed(self, event: Event) -> None:
        if not event.detail.get("final"):
            return
        self._write(logging.DEBUG, event, "Task failed permanently: %s after %d attempts", event.job_id, event.attempt)
        reason = one_line(event.detail.get("message") or event.detail.get("why", ""))
        self._write(logging.WARNING, event, "gave up on %s %s: %s %s", event.task, event.job_id, event.detail.get("error", ""), reason)

    def _crashed(self, event: Event) -> None:
        self._write(
            logging.WARNING, event, "%s %s: its worker vanished; %s", event.task, event.job_id, one_line(event.detail.get("why", ""))
        )

    def _lease_lost(self, event: Event) -> None:
        self._write(logging.WARNING, event, "%s %s: this worker no longer holds it; its outcome was not recorded", event.task, event.job_id)

    def _requeued(self, event: Event) -> None:
        self._write(logging.INFO, event, "%s %s requeued, generation %s", event.task, event.job_id, event.detail.get("generation"))

    def _cancelled(self, event: Event) -> None:
        self._write(logging.INFO, event, "%s %s cancelled", event.task, event.job_id)

    def _released(self, event: Event) -> None:
        self._write(logging.DEBUG, event, "%s %s released: %s", event.task, event.job_id, one_line(event.detail.get("why", "")))

    def _downstream(self, event: Event) -> None:
        level = logging.WARNING if event.kind in ("BREAKER_OPENED", "DOWNSTREAM_HELD") else logging.INFO
        what = event.kind.lower().replace("_", " ")
        self._write(level, event, "%s: %s (%s)", what, one_line(event.detail.get("downstream", "")), one_line(event.detail.get("why", "")))

    def _budget(self, event: Event) -> None:
        spent = event.kind == "BUDGET_SPENT"
        what = "is spent: retries wait for tokens" if spent else "has tokens again"
        owner = one_line(f"{event.detail.get('owner', '')} {event.detail.get('name', '')}")
        self._write(logging.WARNING if spent else logging.INFO, event, "the retry budget of %s %s", owner, what)

    def _store_degraded(self, event: Event) -> None:
        self._write(logging.WARNING, event, "the store does not answer, retrying: %s", one_line(event.detail.get("error", "")))

    def _store_recovered(self, event: Event) -> None:
        self._write(logging.INFO, event, "the store answers again")
