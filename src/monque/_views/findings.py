"""The meaning of a diagnosis: the faults, and their remedies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from monque import Diagnosis, DueJobs, Job, Pause, UseView
from monque._views.text import id_text, span, stamp

Level: TypeAlias = Literal["ok", "warning", "error"]

# A job that waits longer than this while nothing of its name runs seems to have no worker; in any case, a job
# that could run and has waited longer than the second one is worth a word.
NOBODY_CAME = timedelta(seconds=30)
LONG_WAIT = timedelta(minutes=5)
_LARGE_OFFSET = timedelta(seconds=5)
# Fewer finished jobs do no harm; from here on, statistics and disk space begin to show them.
_MANY_FINISHED = 100_000
# A use that no job of so many days needed has probably ended.
_UNUSED_FOR = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was checked, how it is, and what to do about it; *command* does it in a terminal."""

    check: str
    level: Level
    message: str
    advice: str | None = None
    command: str | None = None

    @property
    def remedy(self) -> str | None:
        """The advice with its command, for those who have a terminal."""
        return self.advice if self.command is None else f"{self.advice} with: {self.command}"


def findings(facts: Diagnosis) -> Iterator[Finding]:
    """Judge what was found out."""
    yield Finding("server", "ok", f"MongoDB {facts.server_version}")
    yield _replica_set(facts)
    yield _change_streams(facts)
    yield _transactions(facts)
    yield _clock(facts)
    yield _missing_indexes(facts)
    yield _superfluous_indexes(facts)
    yield _uses(facts)
    yield _paused_names(facts)
    yield _schedules(facts)
    if facts.misread:
        yield _misread(facts)
    yield _jobs_without_worker(facts)
    yield _stale_jobs(facts)
    yield _stuck_jobs(facts)
    yield _endless_waits(facts)
    if facts.stranded:
        yield Finding("waits that nobody ends", "warning", some(map(_job, facts.stranded)), _WAKE)
    if facts.blocking:
        yield Finding("lines that stand still", "warning", some(map(_job, facts.blocking)), _LET_GO, _WHY)
    yield _expired_jobs(facts)
    yield _lost_calls(facts)
    yield _oldest_due_job(facts)
    yield _finished_jobs(facts)


_MAKE_REPLICA_SET = "run the server as a replica set; one member is enough (mongod --replSet, rs.initiate())"


def _replica_set(facts: Diagnosis) -> Finding:
    if facts.replica_set is not None:
        return Finding("replica set", "ok", facts.replica_set)
    if facts.transactions:
        return Finding("replica set", "ok", "a sharded cluster")
    return Finding("replica set", "warning", "this server stands alone", _MAKE_REPLICA_SET)


def _change_streams(facts: Diagnosis) -> Finding:
    if facts.change_streams:
        return Finding("change streams", "ok", "available: jobs are picked up at once")
    if facts.replica_set is not None or facts.transactions:
        advice = "give the user the actions changeStream and find on the database"
    else:
        advice = _MAKE_REPLICA_SET
    return Finding("change streams", "warning", "not available: jobs are found by polling, later", advice)


def _transactions(facts: Diagnosis) -> Finding:
    if facts.transactions:
        return Finding("transactions", "ok", "available: jobs can be part of yours")
    return Finding("transactions", "warning", "not available: session= cannot be used", _MAKE_REPLICA_SET)


def _clock(facts: Diagnosis) -> Finding:
    offset = facts.clock_offset
    side = "ahead of" if offset > timedelta(0) else "behind"
    message = f"the server's is {span(abs(offset))} {side} this machine's"
    if abs(offset) <= _LARGE_OFFSET:
        return Finding("clock", "ok", message)
    advice = "Monque goes by the server's clock; times your code computes are off: synchronise both (NTP)"
    return Finding("clock", "warning", message, advice)


_CREATE = "monque indexes --create"


def _missing_indexes(facts: Diagnosis) -> Finding:
    if "_id_" not in [index.name for index in facts.indexes]:
        return Finding("indexes", "ok", "the collection is not there yet; it is made with them at first use")
    missing = [index.name for index in facts.of("missing")]
    different = [index.name for index in facts.of("different")]
    if different:
        message = f"{', '.join(different)} has other keys or options than Monque needs"
        return Finding("indexes", "error", message, "drop it, then create it anew", _CREATE)
    if missing:
        message = f"missing: {', '.join(missing)}"
        return Finding("indexes", "error", message, "create them", _CREATE)
    return Finding("indexes", "ok", "all that are needed are there")


def _superfluous_indexes(facts: Diagnosis) -> Finding:
    names = [index.name for index in facts.of("superfluous")]
    if not names:
        return Finding("superfluous indexes", "ok", "none")
    advice = "each costs every write: drop them, unless you or TypeScript instances need them"
    return Finding("superfluous indexes", "warning", ", ".join(names), advice)


def _uses(facts: Diagnosis) -> Finding:
    """Every write pays for the index of a use, also long after the last job that needed it."""
    if not facts.uses:
        return Finding("uses", "ok", "none")
    message = "; ".join(_use(use, facts) for use in facts.uses)
    if not any(_is_unused(use, facts) for use in facts.uses):
        return Finding("uses", "ok", message)
    advice = "every write pays for an index: if nobody stores such jobs any more, drop it (docs: Indexes)"
    return Finding("uses", "warning", message, advice)


def _use(use: UseView, facts: Diagnosis) -> str:
    if _is_unused(use, facts):
        return f"{use.name} ({use.index}), without a job for {_UNUSED_FOR.days} days"
    return f"{use.name} ({use.index})"


def _is_unused(use: UseView, facts: Diagnosis) -> bool:
    if not use.needs_jobs:
        return False  # nobody can see how often it is read
    return use.last_job_at is None or facts.taken_at - use.last_job_at > _UNUSED_FOR


def _paused_names(facts: Diagnosis) -> Finding:
    """A pause without an end is easily forgotten; one with an end was planned."""
    if not facts.paused:
        return Finding("paused names", "ok", "none")
    message = "; ".join(_paused(pause, facts) for pause in facts.paused)
    if all(pause.until is not None for pause in facts.paused):
        return Finding("paused names", "ok", message)
    advice, command = "their jobs wait; let them start again", "monque resume NAME (or --all)"
    return Finding("paused names", "warning", message, advice, command)


def _paused(pause: Pause, facts: Diagnosis) -> str:
    since = "" if pause.since is None else f" for {span(facts.taken_at - pause.since)}"
    until = "" if pause.until is None else f", until {stamp(pause.until)}"
    why = "" if pause.reason is None else f" ({pause.reason})"
    what = "all names" if pause.name is None else pause.name
    return f"{what}{since}{until}{why}"


def _schedules(facts: Diagnosis) -> Finding:
    if not facts.never_ran:
        return Finding("schedules", "ok", "all that had their time have run")
    names = [f"{each.name} {each.key}".rstrip() for each in facts.never_ran]
    advice = "start a worker for these names; if all their runs were skipped, give them a longer grace"
    return Finding("schedules", "warning", f"never ran: {some(names, 5)}", advice)


def _misread(facts: Diagnosis) -> Finding:
    told = "; ".join(f"{expression}: {problem}" for expression, problem in sorted(facts.misread.items()))
    advice = "write these expressions in a way that both read alike; the guide on TypeScript lists them"
    return Finding("cron expressions", "warning", f"TypeScript instances misread {told}", advice)


def _jobs_without_worker(facts: Diagnosis) -> Finding:
    long_ago = facts.taken_at - NOBODY_CAME
    alone = [due for due in _expected(facts) if not due.running and due.oldest < long_ago]
    if not alone:
        return Finding("jobs without a worker", "ok", "none")
    message = "; ".join(f"{due.name}: {_waiting(due, facts)}" for due in alone)
    advice = "start a process with a worker for each of these names, or cancel the jobs"
    return Finding("jobs without a worker", "warning", message, advice)


def _stale_jobs(facts: Diagnosis) -> Finding:
    if not facts.stale:
        return Finding("stale jobs", "ok", "none")
    advice = "their processes died; a running worker puts them back within its heartbeat interval: start one"
    return Finding("stale jobs", "error", some(map(_owned, facts.stale)), advice)


def _expired_jobs(facts: Diagnosis) -> Finding:
    if not facts.expired:
        return Finding("expired jobs", "ok", "none")
    message = f"{facts.expired:,} wait though they are not worth running any more"
    advice = "the next worker that comes to them cancels them; start one, or cancel them"
    return Finding("expired jobs", "warning", message, advice, "monque jobs cancel --expired")


def _lost_calls(facts: Diagnosis) -> Finding:
    if not facts.lost_calls:
        return Finding("lost calls", "ok", "none")
    message = f"{facts.lost_calls:,} ended job(s) should have run once more for a later call"
    advice = "TypeScript or an older version ran them: let instances of this version alone run these names"
    return Finding("lost calls", "warning", message, advice)


def _stuck_jobs(facts: Diagnosis) -> Finding:
    if not facts.stuck:
        return Finding("stuck jobs", "ok", "none")
    advice = "they were told to stop and still run: let their handlers call job.checkpoint()"
    return Finding("stuck jobs", "warning", some(map(_owned, facts.stuck)), advice)


def _endless_waits(facts: Diagnosis) -> Finding:
    if not facts.endless:
        return Finding("waits without an end", "ok", "none")
    advice = "they have waited for 30 days; give receive() or run_jobs() a timeout, and see why they wait"
    return Finding("waits without an end", "warning", some(map(_job, facts.endless)), advice, _WHY)


_WAKE = "their batch is over, or nobody of their line has a turn: start workers of their names to wake them"
_LET_GO = "they wait and keep the turn of an ordered line: no later job of it starts; see why"
_WHY = "monque jobs why ID"


def some(texts: Iterable[str], most: int = 3) -> str:
    """The first of these texts, and how many more there are."""
    shown = list(texts)
    return ", ".join(shown[:most]) + (f" and {len(shown) - most:,} more" if len(shown) > most else "")


def _job(job: Job[Any]) -> str:
    return f"{job.name} {id_text(job.id)}"


def _owned(job: Job[Any]) -> str:
    return f"{_job(job)} of {job.claimed_by}"


def _oldest_due_job(facts: Diagnosis) -> Finding:
    if not (due := _expected(facts)):
        return Finding("oldest due job", "ok", "none is waiting")
    first = due[0]
    message = f"{first.name}: {_waiting(first, facts)}"
    if facts.taken_at - first.oldest <= LONG_WAIT:
        return Finding("oldest due job", "ok", message)
    advice = "there are more jobs than the workers can do: add processes or concurrency"
    return Finding("oldest due job", "warning", message, advice)


def _expected(facts: Diagnosis) -> list[DueJobs]:
    """The due jobs that should start soon: those of paused names wait on purpose."""
    return [due for due in facts.due if not facts.is_paused(due.name)]


def _finished_jobs(facts: Diagnosis) -> Finding:
    if facts.retention:
        return Finding("finished jobs", "ok", f"{facts.finished:,}, removed in their time by a Retention")
    if not facts.finished:
        return Finding("finished jobs", "ok", "none")
    message = f"{facts.finished:,}, kept for ever: no Retention removes them"
    if facts.finished < _MANY_FINISHED:
        return Finding("finished jobs", "ok", message)
    advice = "set Options(retention=Retention(completed=timedelta(days=7))), or remove them"
    command = "monque jobs delete --status completed --updated-before 30d"
    return Finding("finished jobs", "warning", message, advice, command)


def _waiting(due: DueJobs, facts: Diagnosis) -> str:
    return f"{due.count:,} due, the oldest for {span(facts.taken_at - due.oldest)}, {due.running:,} running"
