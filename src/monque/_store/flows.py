"""Durable steps and waits, as they are stored in the document of their job.

    steps    a list of {n: name, k: kind, at, ms, v: value, until, over, id}, at most one entry a name
    signals  those that came and were not received yet: {n: name, at, v: value, id}
    parked   what a pending job waits for: {why, key: the signal or the batch, since, dueAt}; it counts while
             the job is pending

Others may have written these fields: readers leave out what they do not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, cast, get_args

from monque._store.document import (
    SEPARATOR,
    Claim,
    Document,
    count_of,
    due_of,
    is_parked,
    made_aware,
    subdocuments,
    text_of,
    time_of,
)
from monque._values.flows import Parent, Signal, Step, StepKind, Wait, WaitKind
from monque._values.limits import key_of_line

_KINDS = frozenset(get_args(StepKind))
_WAITS = frozenset(get_args(WaitKind))


def entries_of(document: Mapping[str, Any]) -> Iterator[Document]:
    """The entries of a job's steps that have a name and a kind that is known."""
    return (entry for entry in named_of(document) if text_of(entry, "k") in _KINDS)


def named_of(document: Mapping[str, Any]) -> Iterator[Document]:
    """The entries of a job's steps that have a name, of whatever kind: no other may be stored under it."""
    return (entry for entry in subdocuments(document, "steps") if type(entry.get("n")) is str)


def steps_of(document: Mapping[str, Any]) -> tuple[Step, ...]:
    """The steps of a job, as users see them."""
    return tuple(map(step_of, entries_of(document)))


def step_of(entry: Mapping[str, Any]) -> Step:
    """The step of one entry."""
    return Step(
        name=entry["n"],
        kind=cast("StepKind", entry["k"]),
        at=time_of(entry, "at"),
        duration=timedelta(milliseconds=count_of(entry, "ms")) if "ms" in entry else None,
        value=made_aware(entry.get("v")),
        until=time_of(entry, "until"),
        over=time_of(entry, "over"),
        batch=text_of(entry, "batch"),
    )


def signals_of(document: Mapping[str, Any]) -> tuple[Signal, ...]:
    """The signals of a job that nobody has received, the oldest first."""
    return tuple(
        Signal(name=each["n"], at=time_of(each, "at"), value=made_aware(each.get("v")))
        for each in subdocuments(document, "signals")
        if type(each.get("n")) is str
    )


def parent_of(document: Mapping[str, Any]) -> Parent | None:
    """The job that runs this one; None if there is none."""
    parent = document.get("parent")
    if not isinstance(parent, dict) or "id" not in parent or (step := text_of(parent, "step")) is None:
        return None
    return Parent(job_id=parent["id"], step=step)


def wait_of(document: Mapping[str, Any]) -> Wait | None:
    """The event that a job waits for. `parked` counts only while the job is pending."""
    parked = document.get("parked")
    if document.get("status") != "pending" or not isinstance(parked, dict):
        return None
    if (why := text_of(parked, "why")) not in _WAITS:
        return None
    return Wait(
        why=cast("WaitKind", why),
        since=time_of(parked, "since"),
        until=None if is_parked(document) else due_of(document),
        signal=text_of(parked, "key") if why == "signal" else None,
        batch=text_of(parked, "key") if why == "batch" else None,
        line=key_of_line((text_of(parked, "key") or "").partition(SEPARATOR)[2]) if why == "turn" else None,
    )


def has_come(entry: Mapping[str, Any], claim: Claim) -> bool:
    """Return whether the end of a wait had come when the job was claimed.

    Both stamps are the server's: the clock of this machine may be an hour off.
    """
    until, claimed = time_of(entry, "until"), time_of(claim.document, "lockedAt")
    return until is None or claimed is None or until <= claimed


def names_of_signals(document: Mapping[str, Any]) -> list[Any]:
    """The names of the signals that nobody has received."""
    return [each.get("n") if isinstance(each, dict) else None for each in _list(document, "signals")]


def limit_of(entry: Mapping[str, Any]) -> timedelta:
    """The time that a wait was to take at most."""
    began, until = time_of(entry, "at"), time_of(entry, "until")
    return timedelta(0) if began is None or until is None else until - began


def with_received(claim: Claim, entry: Document, signal: str) -> Claim:
    """The claim as it is since its run has received a signal, or waits for it no more.

    Failures count from a new entry on, as in `Claim.with_steps`.
    """
    steps = {each["n"]: each for each in entries_of(claim.document)}
    if entry["n"] not in steps:
        claim = claim.with_steps([entry])
    else:
        claim = claim.with_fields(steps=[*{**steps, entry["n"]: entry}.values()])
    names, left = names_of_signals(claim.document), list(_list(claim.document, "signals"))
    if "v" in entry and signal in names:  # else it came since the claim
        del left[names.index(signal)]
    return claim.with_fields(signals=left)


def _list(document: Mapping[str, Any], field: str) -> list[Any]:
    stored = document.get(field)
    return stored if isinstance(stored, list) else []
