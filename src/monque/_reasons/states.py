"""The reasons of jobs that have ended, of those that run, and of those that are in no state of ours."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from monque._english import amount, span
from monque._explanation import Evidence, Explanation, Remedy
from monque._job import Job
from monque._reasons.facts import Facts
from monque._reasons.words import (
    START,
    ago,
    certainty,
    delete,
    error_of,
    failure_evidence,
    id_of,
    last_failure,
    owner_evidence,
    retry,
    shortened,
    show,
    who,
)
from monque._status import JobStatus


def odd(job: Job[Any], _facts: Facts) -> Explanation | None:
    # Others may have stored anything: the annotations of `Job` hold for what Monque writes.
    if type(job.name) is not str:
        shown = repr(job.name)[:60]
        return _foreign(job, f"Its name is not a text but {shown}, so it has no worker.")
    if not isinstance(job.status, JobStatus):
        shown = repr(job.status)[:60]
        return _foreign(job, f"Its status is {shown}, which Monque does not know, so nobody touches it.")
    return None


def undated(job: Job[Any], _facts: Facts) -> Explanation | None:
    return _foreign(
        job,
        "It is pending without a date, so nobody can claim it.",
        Remedy(
            label="Give it a time",
            action="reschedule",
            command=f"monque jobs reschedule {id_of(job)} --delay 0s",
        ),
    )


def unclaimable(job: Job[Any], facts: Facts) -> Explanation | None:
    if facts.is_claimable:
        return None
    return _foreign(job, "Its attempts are not stored as a number, so the server refuses every claim of it.")


def _foreign(job: Job[Any], sentence: str, *remedies: Remedy) -> Explanation:
    return Explanation(
        code="odd",
        sentence=f"{sentence} Somebody else must have written it.",
        since=job.created_at,
        remedies=(*remedies, show(job), delete(job)),
    )


def finished(job: Job[Any], facts: Facts) -> Explanation | None:
    if job.status not in (JobStatus.COMPLETED, JobStatus.CANCELLED):
        return None
    if job.status is JobStatus.COMPLETED:
        after = "" if facts.ran is None else f" after {span(facts.ran)}"
        return Explanation(
            code="finished",
            sentence=f"It completed{ago(job.updated_at, facts)}{after}.",
            since=job.updated_at,
        )
    reason = "" if job.cancel_reason is None else f": {shortened(job.cancel_reason)}"
    who = _CANCELLED.get(job.cancelled_by, "It was cancelled")
    return Explanation(
        code="finished",
        sentence=f"{who}{ago(job.updated_at, facts)}{reason}.",
        since=job.updated_at,
        remedies=(retry(job),),
    )


_CANCELLED: dict[str | None, str] = {
    "operator": "An operator cancelled it",
    "handler": "Its handler cancelled it",
    "expiry": "It had expired when a worker came to it, and was cancelled",
}


def given_up(job: Job[Any], facts: Facts) -> Explanation | None:
    if job.status is not JobStatus.FAILED:
        return None
    failed_at, error = last_failure(job), error_of(job)
    why = "" if error is None else f": {error}"
    alike = facts.around.alike
    others = f"{'at least ' if facts.around.is_capped else ''}{amount(alike, 'other')}"
    same = f"; {others} failed the same way" if alike else ""
    return Explanation(
        code="given-up",
        sentence=f"{_what_happened(job)}{ago(failed_at, facts)}{why}{same}.",
        since=failed_at,
        evidence=failure_evidence(job),
        remedies=(
            retry(job),
            Remedy(label="See all failures of this name", link=f"failures:{job.name}"),
        ),
    )


def _what_happened(job: Job[Any]) -> str:
    if not job.fail_count:
        return "It was given up"  # its processes died: none of its runs has failed
    if job.fail_count >= job.max_attempts:
        return f"It failed {job.fail_count:,} of {job.max_attempts:,} times, last"
    return f"It failed {amount(job.fail_count, 'time')} and is not to be tried again, last"


def owner_silent(job: Job[Any], facts: Facts) -> Explanation | None:
    heard = _heard_at(job)
    if job.status is not JobStatus.PROCESSING or heard is None or facts.now - heard <= facts.silence:
        return None
    live = [each for each in facts.live if each.state == "running"]
    if live or facts.instances is None or facts.strangers:
        within = (
            f"within {span(min(each.interval for each in live))}" if live else "with their next heartbeat"
        )
        then = f"others take the job over {within}"
    else:
        then = "no live instance is there that could take the job over"
    owner, silent = who(job.claimed_by, facts), span(facts.now - heard)
    return Explanation(
        code="owner-silent",
        sentence=f"Its owner {owner} has been silent for {silent}; {then}.",
        since=heard,
        certainty=certainty(facts) if not live else "certain",
        evidence=(
            *owner_evidence(job, facts),
            Evidence(label="an owner may be silent for", value=span(facts.silence)),
        ),
        remedies=() if live else (START,),
    )


def running(job: Job[Any], facts: Facts) -> Explanation | None:
    if job.status is not JobStatus.PROCESSING:
        return None
    since = _runs_since(job, facts)
    how_long = "It is running" if since is None else f"It has been running for {span(facts.now - since)}"
    heard = _heard_at(job)
    alive = "" if heard is None else f", heard of{ago(heard, facts)}"
    return Explanation(
        code="running",
        sentence=f"{how_long} on {who(job.claimed_by, facts)}{alive}{_how_it_goes(job, facts)}.",
        since=since,
        evidence=owner_evidence(job, facts),
        remedies=(
            Remedy(label="Stop it", action="stop", command=f"monque jobs cancel {id_of(job)} --running"),
            Remedy(label="Look at its progress and log", command=f"monque jobs show {id_of(job)}"),
        ),
    )


def _how_it_goes(job: Job[Any], facts: Facts) -> str:
    if job.stuck_since is not None:
        return f"; its handler was told to stop{ago(job.stuck_since, facts)} and is stuck"
    if job.cancel_requested:
        return "; an operator has asked it to stop, and its handler has not ended yet"
    usual = facts.around.ran.quantile(0.95)
    return "" if usual is None else f"; 95 % of its kind take less than {span(usual)}"


def _runs_since(job: Job[Any], facts: Facts) -> datetime | None:
    """When it was claimed. An owner that is not in the register may not know the field: it may be old."""
    return job.claimed_at if facts.registered(job.claimed_by) is not None else None


def _heard_at(job: Job[Any]) -> datetime | None:
    return job.last_heartbeat or job.locked_at
