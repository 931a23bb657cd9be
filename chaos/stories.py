"""The shortest story of a violation: the lines about its jobs, and the faults around them."""

from __future__ import annotations

from typing import Any

from chaos.history import Event
from chaos.ledger import Ledger

_ABOUT_JOBS = (
    *("invoke", "ok", "doubt", "abort", "start", "end", "completed", "failed", "snoozed", "cancelled"),
    *("lost", "trouble", "command", "done", "refused", "doubtful"),
    *("step", "stored", "woke", "received", "signal", "signalled", "unsent", "gathered"),
)
_ABOUT_FAULTS = ("injected", "healed")
_ABOUT_PAUSES = ("command", "done", "doubtful")
_PAUSES = ("pause", "resume", "pause schedule", "resume schedule", "trigger schedule")
_ABOUT_PROCESSES = ("up", "down", "signal", "stuck", "stall")
_BEFORE, _AFTER = 3.0, 1.0
_LONGEST = 30


def story(
    ledger: Ledger, jobs: list[str], token: str | None = None, around: float | None = None
) -> list[str]:
    """What happened to these jobs and around them, a line each, with the seconds since the first.

    If that is much, what is nearest to *around* is told.
    """
    tokens = {event["token"] for job in jobs for event in _record(ledger, job)} | {token}
    own = [event for event in ledger.events if _concerns(event, jobs, tokens)]
    if not own and around is None:
        return []
    first = own[0].t if own else around or 0.0
    last = own[-1].t if own else around or 0.0
    pids = {event.pid for event in own}
    context = [
        event
        for event in ledger.events
        if first - _BEFORE <= event.t <= last + _AFTER and _is_context(event, pids, everybody=not own)
    ]
    beats = _last_beats(ledger, jobs)
    told = sorted([*own, *context, *beats], key=lambda event: event.t)
    point = last if around is None else around
    nearest = sorted(told, key=lambda event: abs(event.t - point))[:_LONGEST]
    lines = [_line(event, first) for event in sorted(nearest, key=lambda event: event.t)]
    left_out = len(told) - len(nearest)
    return [*lines, f"({left_out} more lines, farther away, are left out)"] if left_out else lines


def _record(ledger: Ledger, job: str) -> list[Event]:
    record = ledger.jobs.get(job)
    return [] if record is None else [*record.acknowledged, *(run.start for run in record.runs)]


def _concerns(event: Event, jobs: list[str], tokens: set[Any]) -> bool:
    if event.kind not in _ABOUT_JOBS:
        return False
    return event.get("job") in jobs or (event.get("token") is not None and event.get("token") in tokens)


def _is_context(event: Event, pids: set[int], *, everybody: bool) -> bool:
    if event.kind in _ABOUT_FAULTS:
        return True
    if event.kind in _ABOUT_PAUSES:
        return event["what"] in _PAUSES
    pid = event.pid if event.kind == "stall" else event.get("whose_pid")
    return event.kind in _ABOUT_PROCESSES and (everybody or pid in pids)


def _last_beats(ledger: Ledger, jobs: list[str]) -> list[Event]:
    """Of each run the last heartbeat."""
    last: dict[str, Event] = {}
    for event in ledger.of("beat"):
        for claim in event["claims"]:
            if claim.partition("/")[0] in jobs:
                last[claim] = Event(event.t, event.who, "last beat", event.pid, {"claim": claim})
    return list(last.values())


def _line(event: Event, first: float) -> str:
    facts = " ".join(f"{name}={_value(value)}" for name, value in event.facts.items() if value is not None)
    return f"{event.t - first:+9.3f}  {event.who:<11} {event.kind:<10} {facts}"


def _value(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
