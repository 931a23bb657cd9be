"""What several reasons say: who, since when, what it rests on, and what would help."""

from __future__ import annotations

import re
import shlex
from datetime import datetime, timedelta
from typing import Any

from monque._english import clock, listed, span
from monque._explanation import Certainty, Evidence, Remedy
from monque._instances import Instance
from monque._job import Job
from monque._reasons.facts import Facts

START = Remedy(label="Start an instance", command="monque worker MODULE:ATTR")
DOCTOR = Remedy(label="Examine the deployment", command="monque doctor")
UNREADABLE = Evidence(label="register of instances", value="cannot be read by this user")


def who(instance_id: str | None, facts: Facts) -> str:
    """An instance by the name that a person knows: its id, if somebody chose one, else its machine."""
    instance = facts.registered(instance_id)
    return str(instance_id or "") if instance is None else label(instance)


def label(instance: Instance) -> str:
    if _UUID.fullmatch(instance.id) is None or instance.host is None:
        return instance.id
    return instance.host if instance.pid is None else f"{instance.host} (process {instance.pid})"


_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)


def certainty(facts: Facts) -> Certainty:
    return "likely" if facts.strangers or facts.instances is None else "certain"


def but_strangers(facts: Facts) -> str:
    """That somebody may serve the job who is not in the register."""
    if not facts.strangers:
        return ""
    names = listed([who(each, facts) for each in facts.strangers])
    verb = "holds claims and reports" if len(facts.strangers) == 1 else "hold claims and report"
    return f", but {names} {verb} nothing (TypeScript, or an older version)"


def ago(moment: datetime | None, facts: Facts) -> str:
    return "" if moment is None else f" {span(facts.now - moment)} ago"


def until_due(job: Job[Any], facts: Facts) -> str:
    return f"in {span((job.next_run_at or facts.now) - facts.now)}"


def waited(job: Job[Any], facts: Facts) -> timedelta:
    return facts.now - (job.next_run_at or facts.now)


def shortened(text: str) -> str:
    line = text.strip().partition("\n")[0].rstrip().rstrip(".")
    return line if len(line) <= LONGEST_REASON else line[: LONGEST_REASON - 1] + "…"


# At most so much of an error's text. With half of it, the point of many messages is cut off; with twice, the
# sentence is none any more.
LONGEST_REASON = 200


def error_of(job: Job[Any]) -> str | None:
    """The first line of its last error; None if there is none, or if it is not to be shown."""
    return None if job.fail_reason is None else shortened(str(job.fail_reason))


def last_failure(job: Job[Any]) -> datetime | None:
    """When it failed last; the history may be off."""
    last = job.history[-1].finished_at if job.history else None
    return last or job.updated_at


def recurs(job: Job[Any]) -> bool:
    return job.cron is not None and job.schedule_id is None


def due_evidence(job: Job[Any], facts: Facts) -> tuple[Evidence, ...]:
    if job.next_run_at is None:
        return ()
    since = f"{clock(job.next_run_at, facts.now, seconds=True)} ({span(waited(job, facts))})"
    return (Evidence(label="due since", value=since, link=f"queue:{job.name}", at=job.next_run_at),)


def failure_evidence(job: Job[Any]) -> tuple[Evidence, ...]:
    error = error_of(job)
    last = () if error is None else (Evidence(label="last error", value=error),)
    return (Evidence(label="failures", value=f"{job.fail_count:,}"), *last)


def owner_evidence(job: Job[Any], facts: Facts) -> tuple[Evidence, ...]:
    if job.claimed_by is None:
        return ()
    instance = facts.registered(job.claimed_by)
    told = "reports nothing (TypeScript, or an older version)" if instance is None else instance.state
    value = f"{who(job.claimed_by, facts)}: {told}"
    return (Evidence(label="owner", value=value, link=f"instance:{job.claimed_by}"),)


def schedule_evidence(job: Job[Any], facts: Facts) -> tuple[Evidence, ...]:
    """By which rule a schedule runs."""
    every = None if facts.schedule is None else facts.schedule.every
    rule = f"every {span(every)}" if every is not None else f"{job.cron} {job.timezone or 'UTC'}"
    return (Evidence(label="schedule", value=rule, link=f"schedule:{job.id}"),)


def id_of(job: Job[Any]) -> str:
    return shlex.quote(str(job.id))


def of_schedule(verb: str, job: Job[Any]) -> str:
    key = "" if job.unique_key in (None, job.name) else f" --unique-key {shlex.quote(str(job.unique_key))}"
    return f"monque schedules {verb} {shlex.quote(job.name)}{key}"


def retry(job: Job[Any]) -> Remedy:
    return Remedy(label="Retry it", action="retry", command=f"monque jobs retry {id_of(job)}")


def run_now(job: Job[Any]) -> Remedy:
    command = (
        of_schedule("trigger", job) if recurs(job) else f"monque jobs reschedule {id_of(job)} --delay 0s"
    )
    return Remedy(label="Run it now", action="run-now", command=command)


def delete(job: Job[Any]) -> Remedy:
    return Remedy(label="Delete it", action="delete", command=f"monque jobs delete {id_of(job)}")


def show(job: Job[Any]) -> Remedy:
    return Remedy(label="Look at all its fields", command=f"monque jobs show {id_of(job)}")
