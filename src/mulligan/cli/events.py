"""`mulligan events`: what the store's event log holds, and what is added to it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

import click

from mulligan.cli.options import common, reading, run

if TYPE_CHECKING:
    from mulligan.app import Mulligan
    from mulligan.core.events import Event

PAGE = 1_000
STYLES = {
    "FAILED": "red",
    "CRASHED": "red",
    "LEASE_LOST": "red",
    "RETRY_SCHEDULED": "yellow",
    "REQUEUED": "green",
    "QUEUE_PAUSED": "yellow",
    "QUEUE_CHANGED": "yellow",
    "BREAKER_OPENED": "red",
    "BREAKER_HALF_OPEN": "yellow",
    "BREAKER_CLOSING": "yellow",
    "BREAKER_CLOSED": "green",
    "DOWNSTREAM_HELD": "yellow",
}


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Wait for more, until Ctrl-C.")
@click.option("--kind", metavar="KIND", multiple=True, help="Only events of this kind, as in FAILED; may be given several times.")
@click.option("--job", "job_id", metavar="ID", help="Only events of this job.")
@click.option("--limit", type=click.IntRange(0, 10_000), default=50, show_default=True, help="At most so many of those already there.")
@click.option("--every", type=click.FloatRange(0.05, 60), default=0.3, show_default=True, help="Seconds between two looks of --follow.")
@common
def events(follow: bool, kind: tuple[str, ...], job_id: str | None, limit: int, every: float, store: str, as_json: bool) -> None:
    """Show what happened lately in all processes, oldest first. With --json each event is one line."""
    try:
        run(_events(store, as_json, _checked(kind), job_id, limit, every if follow else None))
    except KeyboardInterrupt:
        if not follow:
            raise


def _checked(kinds: tuple[str, ...]) -> frozenset[str]:
    from mulligan.core.errors import BadSetting
    from mulligan.core.events import STORED_KINDS

    wanted = frozenset(kind.upper() for kind in kinds)
    if not wanted <= STORED_KINDS:
        raise BadSetting(f"--kind {min(wanted - STORED_KINDS)!r} is not kept in the store; kept are {', '.join(sorted(STORED_KINDS))}")
    return wanted


async def _events(url: str, as_json: bool, kinds: frozenset[str], job_id: str | None, limit: int, every_s: float | None) -> None:
    async with reading(url) as app:
        kept: deque[Event] = deque(maxlen=limit)
        seq = 0
        while page := await app.store.read_events(seq, PAGE):
            seq = page[-1].seq
            kept.extend(event for event in page if _matches(event, kinds, job_id))
        for event in kept:
            _print(event, as_json)
        while every_s is not None:
            seq = await _news(app, seq, kinds, job_id, as_json)
            await asyncio.sleep(every_s)


async def _news(app: Mulligan, seq: int, kinds: frozenset[str], job_id: str | None, as_json: bool) -> int:
    """Prints what came after `seq`; the new end of the log."""
    while page := await app.store.read_events(seq, PAGE):
        seq = page[-1].seq
        for event in page:
            if _matches(event, kinds, job_id):
                _print(event, as_json)
    return seq


def _matches(event: Event, kinds: frozenset[str], job_id: str | None) -> bool:
    return (not kinds or event.kind in kinds) and (job_id is None or event.job_id == job_id)


def event_view(event: Event) -> dict[str, Any]:
    """One event as plain data."""
    from mulligan.cli.times import iso

    return {
        "seq": event.seq,
        "at": iso(event.at_us),
        "kind": event.kind,
        "job_id": event.job_id or None,
        "queue": event.queue or None,
        "task": event.task or None,
        "worker": event.worker or None,
        "fence": event.fence or None,
        "attempt": event.attempt or None,
        "ran_s": event.ran_us / 1e6 or None,
        "detail": event.detail,
    }


def _print(event: Event, as_json: bool) -> None:
    from mulligan.cli.output import emit_line, say
    from mulligan.core.clock import us_to_datetime

    if as_json:
        emit_line(event_view(event))
        return
    at = us_to_datetime(event.at_us).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    what = " ".join(part for part in (event.task, event.job_id) if part) or event.detail.get("downstream") or event.queue or event.worker
    attempt = f" attempt {event.attempt}" if event.attempt else ""
    say(f"{at} {event.kind:<15} {what}{attempt}{_detail(event.detail)}", style=STYLES.get(event.kind, ""))


def _detail(detail: dict[str, Any]) -> str:
    """The part of an event's detail that a person wants first."""
    parts = []
    if detail.get("error"):
        parts.append(f"{detail['error']}: {detail.get('message', '')}")
    if detail.get("delay_s") is not None:
        parts.append(f"again in {detail['delay_s']:g} s")
    if detail.get("final"):
        parts.append("gave up")
    if isinstance(changed := detail.get("settings"), dict):
        parts.append(", ".join(f"{name} {'none' if value is None else value}" for name, value in changed.items()) or "as the code says")
    parts += [str(detail[name]) for name in ("reason", "by", "why") if detail.get(name) and not (name == "why" and detail.get("error"))]
    return f": {'; '.join(parts)}" if parts else ""
