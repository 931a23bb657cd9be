"""The problems of the first screen, the worst first: one for each cause, and what a button can do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

from monque import Diagnosis, Job, Pause
from monque._views.findings import LONG_WAIT, NOBODY_CAME, Finding, findings, some
from monque._views.live import Row, Snapshot
from monque._views.text import id_text
from monque.web.outlook import about
from monque.web.serialization import Dto
from monque.web.text import is_text, without_credentials


class OpsTroubled(Dto):
    """A cause of trouble, and the page that shows more.

    *name* is the queue, or null. If it *resumes*, it ends with the pause of this name (null: of all).
    """

    cause: str
    level: Literal["warning", "error"]
    message: str
    advice: str | None
    href: str | None
    name: str | None
    resumes: bool


# Of one kind: 500 names without a worker have one cause, and nobody reads the rest.
_MOST = 3

# Findings that are told here in other words, with the live numbers, and the pages that show more of them.
_OTHERWISE = {
    "paused names": "queues",
    "jobs without a worker": "queues",
    "oldest due job": "queues",
    "stale jobs": "instances",
    "stuck jobs": "jobs?status=processing",
    "schedules": "schedules",
}
PLACES = {**_OTHERWISE, "expired jobs": "jobs?expired=true", "cron expressions": "schedules"}
"""The pages that show more of findings."""


def problems(facts: Diagnosis | None, snapshot: Snapshot) -> list[OpsTroubled]:
    """The problems that a snapshot and a diagnosis show; without a diagnosis, those of the snapshot."""
    found = [*_of_queues(snapshot.rows), *_silent(snapshot)]
    if facts is not None:
        told = {each.name for each in found if each.cause == "unserved"}
        silent = {each["id"] for each in snapshot.instances.values() if _is_silent(each)}
        found += [*_paused(facts, snapshot.rows), *_of_jobs(facts, silent), *_never_ran(facts, told)]
        found += [
            _from(each) for each in findings(facts) if each.check not in _OTHERWISE and each.level != "ok"
        ]
    return sorted(found, key=lambda each: each.level != "error")


def away(message: str) -> OpsTroubled:
    """The diagnosis could not be made."""
    return _problem("doctor", "warning", message)


def _problem(
    cause: str,
    level: Literal["warning", "error"],
    message: str,
    *,
    href: str | None = None,
    name: str | None = None,
    advice: str | None = None,
    resumes: bool = False,
) -> OpsTroubled:
    return OpsTroubled(
        cause=cause,
        level=level,
        message=without_credentials(message),
        advice=advice,
        href=href,
        name=name,
        resumes=resumes,
    )


def _of_queues(rows: Mapping[str, Row]) -> Iterator[OpsTroubled]:
    """Queues in which due jobs wait, those that wait longest first."""
    waiting = sorted((row for row in rows.values() if row.due and not row.paused), key=_waited, reverse=True)
    still = [row for row in waiting if not row.running and _waited(row) > NOBODY_CAME]
    unserved, standing = [row for row in still if not row.slots], [row for row in still if row.slots]
    late = [row for row in waiting if row.running and _waited(row) > LONG_WAIT]
    yield from _each("unserved", "error", unserved, lambda row: f"Nobody serves {row.name}: {_due(row)}")
    yield from _each("standing", "error", standing, lambda row: f"{row.name} stands still: {_due(row)}")
    yield from _each(
        "late", "warning", late, lambda row: f"{row.name} is late: {_due(row)}, {row.running:,} running"
    )


def _each(
    cause: str, level: Literal["warning", "error"], rows: Sequence[Row], words: Callable[[Row], str]
) -> Iterator[OpsTroubled]:
    for row in rows[:_MOST]:
        yield _problem(cause, level, words(row), name=row.name)
    if len(rows) > _MOST:
        yield _problem(cause, level, f"The same in {len(rows) - _MOST:,} other queues", href="queues")


def _due(row: Row) -> str:
    return f"{row.due:,} due, the oldest for {about(_waited(row))}"


def _waited(row: Row) -> timedelta:
    return timedelta(milliseconds=row.oldest_due_ms)


def _is_silent(instance: Mapping[str, Any]) -> bool:
    return not instance["alive"] and instance["state"] != "stopped"


def _silent(snapshot: Snapshot) -> Iterator[OpsTroubled]:
    """Instances that did not say goodbye and are not heard of."""
    found = [each for each in snapshot.instances.values() if _is_silent(each)]
    if not found:
        return
    hosts = [f"{each['host']}:{each['pid']}" if each["host"] else str(each["id"]) for each in found]
    verb = "is" if len(found) == 1 else "are"
    last = sum(each["busy"] for each in found)
    known = f"; last known: {last:,} run{'' if last == 1 else 's'}" if last else ""
    yield _problem(
        "silent",
        "warning",
        f"{some(hosts)} {verb} silent{known}",
        href="instances?state=silent",
        advice="Others take the jobs over.",
    )


def _paused(facts: Diagnosis, rows: Mapping[str, Row]) -> Iterator[OpsTroubled]:
    """Pauses without an end, which are easily forgotten; those with an end were planned."""
    forgotten = [pause for pause in facts.paused if pause.until is None]
    for pause in forgotten[:_MOST]:
        yield _problem("paused", "warning", _pause(pause, facts, rows), name=pause.name, resumes=True)
    if len(forgotten) > _MOST:
        yield _problem(
            "paused", "warning", f"{len(forgotten) - _MOST:,} other names are paused", href="queues"
        )


def _pause(pause: Pause, facts: Diagnosis, rows: Mapping[str, Row]) -> str:
    what, verb, has = ("All queues", "are", "have") if pause.name is None else (pause.name, "is", "has")
    since = None if pause.since is None else about(facts.taken_at - pause.since)
    paused = f"{verb} paused" if since is None else f"{has} been paused for {since}"
    why = "" if pause.reason is None else f" ({pause.reason})"
    due = sum(row.due for row in rows.values() if pause.name in (None, row.name))
    return f"{what} {paused}{why}: {due:,} due"


def _of_jobs(facts: Diagnosis, silent: Iterable[str]) -> Iterator[OpsTroubled]:
    known = [*silent]  # no set: others may have stored anything as the owner of a job
    # That an instance is silent says it already.
    if stale := [job for job in facts.stale if job.claimed_by not in known]:
        yield _problem(
            "stale",
            "error",
            f"The processes of {some(map(_job, stale))} died, and nobody takes them over",
            href="jobs?status=processing",
            advice="Start an instance that serves them.",
        )
    if facts.stuck:
        yield _problem(
            "stuck",
            "warning",
            f"{some(map(_job, facts.stuck))} were told to stop and still run",
            href="jobs?status=processing",
            advice="Let their handlers call job.checkpoint().",
        )


def _never_ran(facts: Diagnosis, unserved: Iterable[str | None]) -> Iterator[OpsTroubled]:
    """Schedules that never ran; those of names that nobody serves have that cause."""
    known = set(unserved)
    if found := [each for each in facts.never_ran if each.name not in known]:
        names = some(f"{each.name} {each.key}".rstrip() for each in found)
        yield _problem("schedules", "warning", f"Never ran, though it was time: {names}", href="schedules")


def _from(finding: Finding) -> OpsTroubled:
    message = f"{finding.check.capitalize()}: {finding.message}"
    level: Literal["warning", "error"] = "error" if finding.level == "error" else "warning"
    place, advice = PLACES.get(finding.check), finding.advice
    return _problem(finding.check, level, message, href=place, advice=advice)


def _job(job: Job[Any]) -> str:
    return f"{job.name if is_text(job.name) else ''} {id_text(job.id)}"
