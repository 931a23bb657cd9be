"""The reasons why a job does not run: the facts, the rules, their order and their sentences; no I/O.

The rules are asked one after the other; the first one that fits gives the answer. Nothing here talks to a
database: `surroundings.py` gathers the facts.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from monque._values.flows import Wait
from monque._values.job import Job
from monque._values.records import Instance, InstanceWorker
from monque._values.schedule import Schedule
from monque._values.status import JobStatus
from monque._values.trends import Histogram
from monque._values.views import Certainty, Evidence, Explanation, Pause, Remedy
from monque._values.words import amount, clock, day, listed, ordinal, span


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A job of the same name that runs."""

    id: Any
    since: datetime
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """Facts about other jobs; what nobody asked for, or could read, is None or empty."""

    ahead: int | None = None
    """The number of due jobs of the name that are before this one."""
    urgent_ahead: int = 0
    """The number of them with a higher priority."""
    is_capped: bool = False
    """True if there are more of these than were counted."""
    longest: Running | None = None
    """The job of the name that has been running longest."""
    alike: int = 0
    """The number of others that failed with the same error."""
    per_minute: float | None = None
    """The number of runs of the name that ended in a minute, lately."""
    ran: Histogram = field(default_factory=Histogram)
    """The durations of runs of the name."""
    waited: Histogram = field(default_factory=Histogram)
    """The waits of jobs of the name, once they were due."""
    batch: tuple[int, int] | None = None
    """Of the batch that it waits for: the jobs that have not ended, and all that are stored."""
    line: tuple[int, int] | None = None
    """Of the line that it waits in: the jobs that run, and those that wait before it."""
    turns: int = 0
    """The number of jobs of the name that run and have a turn, if the name has a limit as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts around a job. Which of these are needed depends on its state."""

    now: datetime
    """The server's time."""
    silence: timedelta = timedelta(seconds=90)
    """The longest silence of the owner of this job before others take it."""
    ran: timedelta | None = None
    """The duration of its last run."""
    is_claimable: bool = True
    """True if a claim can be written into it. Others may have stored what the server cannot count on."""
    schedule: Schedule | None = None
    """The schedule, if the job is one."""
    pause: Pause | None = None
    """The pause that keeps its name from running."""
    instances: tuple[Instance, ...] | None = ()
    """The register; None if it cannot be read."""
    unregistered: tuple[str, ...] = ()
    """Owners of claims that are alive and not in the register."""
    around: Around = field(default_factory=Around)

    @property
    def live(self) -> list[Instance]:
        """The instances that have reported lately and are not stopped."""
        return [each for each in self.instances or () if each.alive and each.state != "stopped"]

    def holders(self, name: str) -> list[tuple[Instance, InstanceWorker]]:
        """The live instances that have a worker of this name, with it, switched off or not."""
        return [(each, worker) for each in self.live for worker in each.workers if worker.name == name]

    def serving(self, name: str) -> list[tuple[Instance, InstanceWorker]]:
        """The live instances that run jobs of this name."""
        return [
            (each, worker)
            for each, worker in self.holders(name)
            if each.state == "running" and not worker.off
        ]

    def registered(self, instance_id: str | None) -> Instance | None:
        """The instance with this id, dead or alive."""
        return next((each for each in self.instances or () if each.id == instance_id), None)


def competing(name: str, facts: Facts) -> set[str]:
    """The names whose runs take slots from this one: others do where an instance has a limit for all."""
    limited = [
        each
        for each, _ in facts.serving(name)
        if each.slots < sum(worker.concurrency for worker in each.workers if not worker.off)
    ]
    return {name} | {worker.name for each in limited for worker in each.workers}


def with_claims(facts: Facts, claims: Counter[tuple[str, str]]) -> Facts:
    """Count what runs now, by owner and name: the register says what ran some seconds ago."""
    by_owner: Counter[str] = Counter()
    for (owner, _), count in claims.items():
        by_owner[owner] += count
    instances = tuple(
        replace(
            each,
            busy=max(each.busy, by_owner[each.id]),
            workers=tuple(
                replace(worker, active=max(worker.active, claims[each.id, worker.name]))
                for worker in each.workers
            ),
        )
        for each in facts.instances or ()
    )
    return replace(facts, instances=instances)


def is_full(job: Job[Any], facts: Facts) -> bool:
    """Return whether all slots for jobs of this name are taken, on the instances that serve it."""
    serving = facts.serving(job.name)
    return bool(serving) and all(
        worker.active >= worker.concurrency or each.busy >= each.slots > 0 for each, worker in serving
    )


def alike(reason: object, others: Iterable[str]) -> int:
    """Return how many of these errors say the same, whatever numbers, ids and quoted texts they hold."""
    kind = _kind(str(reason))
    return sum(_kind(other) == kind for other in others)


def _kind(reason: str) -> str:
    return _PARTICULAR.sub("…", reason.partition("\n")[0])[:_LONGEST_KIND]


# The first characters of an error are enough to tell it from others.
_LONGEST_KIND = 200
_PARTICULAR = re.compile(r"'[^']*'|\"[^\"]*\"|\b[0-9a-f]{8,}\b|\d+", re.IGNORECASE)


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
    return "likely" if facts.unregistered or facts.instances is None else "certain"


def but_unregistered(facts: Facts) -> str:
    """That somebody may serve the job who is not in the register."""
    if not facts.unregistered:
        return ""
    names = listed([who(each, facts) for each in facts.unregistered])
    verb = "holds claims and reports" if len(facts.unregistered) == 1 else "hold claims and report"
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


# At most so much of an error's text: the sentence must stay one.
LONGEST_REASON = 200


def error_of(job: Job[Any]) -> str | None:
    """The first line of its last error; None if there is none, or if it is not to be shown."""
    return None if job.fail_reason is None else shortened(str(job.fail_reason))


def last_failure(job: Job[Any]) -> datetime | None:
    """Return when it failed last; the history may be off."""
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
    told = "reports nothing (TypeScript, or an older version)"
    if instance is not None:  # one that is silent said last that it runs
        told = instance.state if instance.alive or instance.state == "stopped" else "silent"
    value = f"{who(job.claimed_by, facts)}: {told}"
    return (Evidence(label="owner", value=value, link=f"instance:{job.claimed_by}"),)


def schedule_evidence(job: Job[Any], facts: Facts) -> tuple[Evidence, ...]:
    """By which rule a schedule runs."""
    every = None if facts.schedule is None else facts.schedule.every
    rule = f"every {span(every)}" if every is not None else f"{job.cron} {job.timezone or 'UTC'}"
    return (Evidence(label="schedule", value=rule, link=f"schedule:{job.id}"),)


def on_job(command: str, job: Job[Any], *options: str) -> str:
    """A command for one job."""
    return " ".join(("monque jobs", command, shlex.quote(str(job.id)), *options))


def of_schedule(verb: str, job: Job[Any]) -> str:
    key = "" if job.unique_key in (None, job.name) else f" --unique-key {shlex.quote(str(job.unique_key))}"
    return f"monque schedules {verb} {shlex.quote(job.name)}{key}"


def retry(job: Job[Any]) -> Remedy:
    return Remedy(label="Retry it", action="retry", command=on_job("retry", job))


def run_now(job: Job[Any]) -> Remedy:
    command = of_schedule("trigger", job) if recurs(job) else on_job("reschedule", job, "--delay 0s")
    return Remedy(label="Run it now", action="run-now", command=command)


def delete(job: Job[Any]) -> Remedy:
    return Remedy(label="Delete it", action="delete", command=on_job("delete", job))


def prioritize(job: Job[Any], label: str) -> Remedy:
    return Remedy(label=label, action="priority", command=on_job("priority 9", job))


def start_worker(job: Job[Any]) -> Remedy:
    command = f"{START.command} --only {shlex.quote(job.name)}"
    return Remedy(label="Start a worker for it", command=command)


def show(job: Job[Any]) -> Remedy:
    return Remedy(label="Look at all its fields", command=on_job("show", job))


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
    command = on_job("reschedule", job, "--delay 0s")
    remedy = Remedy(label="Give it a time", action="reschedule", command=command)
    return _foreign(job, "It is pending without a date, so nobody can claim it.", remedy)


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
    "batch": "A job of the batch that it waited for did not complete, so it was cancelled",
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
    if live or facts.instances is None or facts.unregistered:
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
            Remedy(label="Stop it", action="stop", command=on_job("cancel", job, "--running")),
            Remedy(label="Look at its progress and log", command=on_job("show", job)),
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
    """Return when it was claimed. An owner that is not in the register may be old and not know the field."""
    return job.claimed_at if facts.registered(job.claimed_by) is not None else None


def _heard_at(job: Job[Any]) -> datetime | None:
    return job.last_heartbeat or job.locked_at


# A job that is due for less long than this has not waited yet: a busy machine is not broken.
_MOMENT = timedelta(seconds=5)

# A job waits for unusually long beyond this many times what 95 % of its kind wait.
_USUAL_WAITS = 3


def _due(
    job: Job[Any],
    facts: Facts,
    code: str,
    sentence: str,
    *remedies: Remedy,
    more: tuple[Evidence, ...] = (),
    **said: Any,
) -> Explanation:
    """The answer for a job that is due: it is so since then, and as certain as the register is complete."""
    return Explanation(
        code=code,
        sentence=sentence,
        evidence=(*due_evidence(job, facts), *more),
        remedies=remedies,
        **{"since": job.next_run_at, "certainty": certainty(facts), **said},
    )


def expired(job: Job[Any], facts: Facts) -> Explanation | None:
    if job.expires_at is None or job.expires_at > facts.now:
        return None
    when, then = ago(job.expires_at, facts), "the next worker that comes to it cancels it"
    sentence = f"It expired{when} and will not run: {then}."
    return _due(job, facts, "expired", sentence, delete(job), since=job.expires_at, certainty="certain")


def paused(job: Job[Any], facts: Facts) -> Explanation | None:
    pause = facts.pause
    if pause is None:
        return None
    what = "all job names" if pause.name is None else pause.name
    why = "" if pause.reason is None else f' ("{shortened(pause.reason)}")'
    until = "" if pause.until is None else f", until {clock(pause.until, facts.now)}"
    target = "--all" if pause.name is None else shlex.quote(pause.name)
    operator = who(pause.by, facts) or "Somebody"
    sentence = f"{operator} paused {what}{ago(pause.since, facts)}{why}{until}."
    resume = Remedy(label="Resume it", action="resume", command=f"monque resume {target}")
    return _due(job, facts, "paused", sentence, resume, since=pause.since, certainty="certain")


def no_instance(job: Job[Any], facts: Facts) -> Explanation | None:
    if facts.instances is None or facts.live:
        return None
    seen = max((each.seen_at for each in facts.instances if each.seen_at is not None), default=None)
    since = "yet" if seen is None else f"since {clock(seen, facts.now)}"
    sentence = f"No instance has reported {since}{but_unregistered(facts)}."
    return _due(job, facts, "no-instance", sentence, START, DOCTOR, more=_silent(facts), since=seen)


def _silent(facts: Facts) -> tuple[Evidence, ...]:
    """The instances that reported last."""
    known = [each for each in facts.instances or () if each.seen_at is not None]
    latest = sorted(known, key=lambda each: each.seen_at or facts.now, reverse=True)[:3]
    return tuple(
        Evidence(
            label="last report",
            value=f"{label(each)}: {each.state},{ago(each.seen_at, facts)}",
            link=f"instance:{each.id}",
        )
        for each in latest
    )


def no_worker(job: Job[Any], facts: Facts) -> Explanation | None:
    if not facts.live or facts.holders(job.name):
        return None
    count = len(facts.live)
    nobody = f"None of {count:,} live instances has" if count > 1 else "The only live instance has no"
    guess = _meant(job.name, facts)
    hint = "" if guess is None else f" Did you mean {guess}?"
    sentence = f"{nobody}{' a' if count > 1 else ''} worker for {job.name}{but_unregistered(facts)}.{hint}"
    return _due(job, facts, "no-worker", sentence, start_worker(job), delete(job), more=_served(facts))


def _meant(name: str, facts: Facts) -> str | None:
    """The name of a worker that this one is a misspelling of, probably."""
    known = sorted({worker.name for each in facts.live for worker in each.workers})
    return next(iter(difflib.get_close_matches(name, known, 1, 0.75)), None)


def _served(facts: Facts) -> tuple[Evidence, ...]:
    names = sorted({worker.name for each in facts.live for worker in each.workers})
    return (Evidence(label="workers there", value=listed(names, 10) if names else "none"),)


def workers_off(job: Job[Any], facts: Facts) -> Explanation | None:
    holders = facts.holders(job.name)
    if not holders or facts.serving(job.name):
        return None
    off = [label(each) for each, worker in holders if each.state == "running" and worker.off]
    stopping = [label(each) for each, _ in holders if each.state != "running"]
    parts = []
    if off:
        have = "has" if len(off) == 1 else "have"
        parts.append(f"{listed(off)} {have} this worker switched off (--only or --except)")
    if stopping:
        parts.append(f"{listed(stopping)} {'is' if len(stopping) == 1 else 'are'} stopping")
    sentence = f"{'; '.join(parts)}{but_unregistered(facts)}."
    return _due(job, facts, "workers-off", sentence, start_worker(job))


def limited(job: Job[Any], facts: Facts) -> Explanation | None:
    """Jobs with a higher priority stand before it. That counts only where there are too few slots."""
    around = facts.around
    if not is_full(job, facts) or not around.ahead or around.urgent_ahead * 2 < around.ahead:
        return None
    have = "has" if around.urgent_ahead == 1 else "have"
    before = amount(around.ahead, "job", at_least=around.is_capped)
    busy = f"{_busy_slots(job, facts)}{_how_soon(facts)}"
    sentence = f"{around.urgent_ahead:,} of the {before} before it {have} a higher priority, and {busy}."
    remedy = prioritize(job, "Give it a higher priority")
    own = Evidence(label="its priority", value=str(job.priority))
    return _due(job, facts, "limited", sentence, remedy, more=(own,))


def slots_full(job: Job[Any], facts: Facts) -> Explanation | None:
    if not is_full(job, facts):
        return None
    around = facts.around
    before = amount(around.ahead or 0, "job", at_least=around.is_capped)
    are = "is" if around.ahead == 1 else "are"
    ahead = f"; {before} {are} before it{_how_soon(facts)}" if around.ahead else "; it is the next one"
    busy = _busy_slots(job, facts)
    sentence = f"{busy[0].upper()}{busy[1:]}{ahead}.{_longest(facts)}"
    remedies = replace(START, label="Start another instance"), prioritize(job, "Let it come first")
    return _due(job, facts, "slots-full", sentence, *remedies, more=_longest_evidence(facts))


def _busy_slots(job: Job[Any], facts: Facts) -> str:
    serving = facts.serving(job.name)
    slots = sum(min(worker.concurrency, each.slots or worker.concurrency) for each, worker in serving)
    if slots == 1:
        return f"the only slot for {job.name} is busy"
    return f"all {slots:,} slots for {job.name} on {amount(len(serving), 'instance')} are busy"


def _how_soon(facts: Facts) -> str:
    around = facts.around
    if not around.per_minute or not around.ahead or around.is_capped:
        return ""
    rate = f"{around.per_minute:,.0f}" if around.per_minute >= 1 else f"{around.per_minute:.1f}"
    return f"; at {rate} a minute that is about {span(timedelta(minutes=around.ahead / around.per_minute))}"


def _longest(facts: Facts) -> str:
    longest = facts.around.longest
    if longest is None:
        return ""
    return (
        f" Longest running: {longest.id}, for {span(facts.now - longest.since)} on {who(longest.by, facts)}."
    )


def _longest_evidence(facts: Facts) -> tuple[Evidence, ...]:
    longest = facts.around.longest
    if longest is None:
        return ()
    value = f"{longest.id}, {span(facts.now - longest.since)}"
    return (Evidence(label="longest running", value=value, link=f"job:{longest.id}"),)


def just_due(job: Job[Any], facts: Facts) -> Explanation | None:
    wait = waited(job, facts)
    slow, usual = facts.around.waited.quantile(0.95), facts.around.waited.quantile(0.5)
    if wait >= _MOMENT and (slow is None or wait >= _USUAL_WAITS * slow):
        return None
    usually = "" if usual is None else f"; pick-up usually takes {span(usual)}"
    return _due(job, facts, "just-due", f"It became due {span(wait)} ago{usually}.", certainty="certain")


def polling(job: Job[Any], facts: Facts) -> Explanation | None:
    serving = [each for each, _ in facts.serving(job.name)]
    if not serving or any(each.change_stream == "live" for each in serving):
        return None
    pause = min((wait for each in serving if (wait := _poll_interval(each))), default=None)
    often = "look from time to time" if pause is None else f"look every {span(pause)}"
    is_enough = pause is not None and waited(job, facts) <= pause + _MOMENT
    sentence, sure = f"No change stream: instances {often}.", "certain" if is_enough else "likely"
    remedy = replace(DOCTOR, label="See why there is no change stream")
    return _due(job, facts, "polling", sentence, remedy, certainty=sure)


def _poll_interval(instance: Instance) -> timedelta | None:
    stored = instance.settings.get("poll_interval")
    return stored if isinstance(stored, timedelta) else None


def unclear(job: Job[Any], facts: Facts) -> Explanation:
    register = () if facts.instances is not None else (UNREADABLE,)
    sentence = "Nothing that we can see stands in its way."
    return _due(job, facts, "unclear", sentence, DOCTOR, more=register, certainty="likely")


def backing_off(job: Job[Any], facts: Facts) -> Explanation | None:
    if job.fail_count == 0:
        return None
    failed_at = last_failure(job)
    at = f" at {clock(failed_at, facts.now, seconds=True)}" if failed_at is not None else ""
    return Explanation(
        code="backing-off",
        sentence=f"Attempt {job.fail_count:,} failed{at}; the next is {until_due(job, facts)}.",
        since=failed_at,
        evidence=failure_evidence(job),
        remedies=(run_now(job),),
    )


def scheduled(job: Job[Any], facts: Facts) -> Explanation | None:
    if not recurs(job) or job.next_run_at is None:
        return None
    at = day(job.next_run_at, facts.now, job.timezone)
    return Explanation(
        code="scheduled",
        sentence=f"Its next time is {at}, {until_due(job, facts)}.",
        since=job.last_run_at,
        evidence=schedule_evidence(job, facts),
        remedies=(run_now(job),),
    )


def delayed(job: Job[Any], facts: Facts) -> Explanation | None:
    if job.next_run_at is None:
        return None
    at = clock(job.next_run_at, facts.now, seconds=True)
    if job.snooze_count:
        times = ordinal(job.snooze_count)
        why = f"Its handler has put it off for the {times} time: it runs again at {at}"
    else:
        why = f"It was stored to run at {at}"
    return Explanation(
        code="delayed",
        sentence=f"{why}, {until_due(job, facts)}.",
        since=job.updated_at if job.snooze_count else job.created_at,
        remedies=(run_now(job),),
    )


def sleeping(job: Job[Any], facts: Facts) -> Explanation | None:
    wait = job.waits_for
    if wait is None or wait.why != "time" or wait.until is None:
        return None
    step = next((each.name for each in job.steps if each.kind == "sleep" and each.until == wait.until), "")
    where = f' in "{step}"' if step else ""
    at = clock(wait.until, facts.now, seconds=True)
    return Explanation(
        code="sleeping",
        sentence=f"It sleeps{where} until {at}, {until_due(job, facts)}.",
        since=wait.since,
        remedies=(replace(run_now(job), label="Wake now"),),
    )


def awaits_signal(job: Job[Any], facts: Facts) -> Explanation | None:
    wait = job.waits_for
    if wait is None or wait.why != "signal":
        return None
    signal = str(wait.signal)
    command = on_job("signal", job, shlex.quote(signal))
    remedies = [Remedy(label="Send the signal", action="signal", command=command)]
    until = _until(wait, job, facts) or ", without an end"
    if any(each.kind == "signal" and each.until == wait.until is not None for each in job.steps):
        remedies.append(replace(run_now(job), label="End the wait"))
    return Explanation(
        code="awaits-signal",
        sentence=f'It waits for the signal "{signal}"{_since(wait, facts)}{until}.',
        since=wait.since,
        remedies=tuple(remedies),
    )


def awaits_batch(job: Job[Any], facts: Facts) -> Explanation | None:
    wait = job.waits_for
    if wait is None or wait.why != "batch":
        return None
    label = str(wait.batch)
    of_its_own = f"{job.id}/"  # the jobs of a `run_jobs` have the label "<id>/<redo>/<name>"
    shown = label.split("/", 2)[-1] if label.startswith(of_its_own) else label
    active, stored = facts.around.batch or (0, 0)
    which = f'{active:,} of {amount(stored, "job")} of "{shown}"' if active else f'the batch "{shown}"'
    then = "" if active else "; none of its jobs is left, so it is woken in a minute"
    command = f"monque jobs list --batch {shlex.quote(label)}"
    return Explanation(
        code="awaits-batch",
        sentence=f"It waits for {which}{_since(wait, facts)}{_until(wait, job, facts)}{then}.",
        since=wait.since,
        remedies=(Remedy(label="See the jobs of the batch", command=command, link=f"batch:{label}"),),
    )


def awaits_turn(job: Job[Any], facts: Facts) -> Explanation | None:
    wait = job.waits_for
    if wait is None or wait.why != "turn":
        return None
    running, before = facts.around.line or (0, 0)
    whose = "its line" if wait.line is None else wait.line
    runs = f"{running:,} of {whose} {'runs' if running == 1 else 'run'}"
    command, link = f"monque lines {shlex.quote(job.name)}", f"queue:{job.name}"
    return Explanation(
        code="awaits-turn",
        sentence=f"It waits for its turn{_since(wait, facts)}: {runs}, {before:,} wait before it.",
        since=wait.since,
        remedies=(Remedy(label="See the lines of this name", command=command, link=link),),
    )


def awaits_name(job: Job[Any], facts: Facts) -> Explanation | None:
    """Its name has a limit, and jobs of it run. How many may, only the workers know."""
    if not (turns := facts.around.turns):
        return None
    runs = f"{amount(turns, 'job')} of this name {'runs' if turns == 1 else 'run'}"
    sentence = f"It waits for its turn: {runs}, and a limit says how many may."
    return _due(job, facts, "awaits-turn", sentence, certainty="likely")


def _since(wait: Wait, facts: Facts) -> str:
    return "" if wait.since is None else f" since {clock(wait.since, facts.now, seconds=True)}"


def _until(wait: Wait, job: Job[Any], facts: Facts) -> str:
    if wait.until is None:
        return ""
    return f", until {clock(wait.until, facts.now, seconds=True)}, {until_due(job, facts)}"


def parked(job: Job[Any], facts: Facts) -> Explanation | None:
    if not job.is_parked:
        return None
    if not recurs(job):
        sentence = "It is parked: it has no time, and waits for whatever will give it one."
        return Explanation(code="parked", sentence=sentence, since=job.updated_at, remedies=(run_now(job),))
    at = None if facts.schedule is None else facts.schedule.paused_at
    resume = Remedy(label="Resume the schedule", action="resume-schedule", command=of_schedule("resume", job))
    return Explanation(
        code="parked",
        sentence=f"Its schedule was paused{ago(at, facts)} and waits until it is resumed.",
        since=at,
        evidence=schedule_evidence(job, facts),
        remedies=(resume,),
    )


Rule: TypeAlias = Callable[[Job[Any], Facts], Explanation | None]


def explain(job: Job[Any], facts: Facts) -> Explanation:
    """Return why this job does not run, or what it does: the first rule that fits."""
    for rule in _rules_for(job, facts):
        if (found := rule(job, facts)) is not None:
            return found
    return unclear(job, facts)


def _rules_for(job: Job[Any], facts: Facts) -> Sequence[Rule]:
    # Others may have stored anything, also `bson.Code`, which is a str that cannot be hashed.
    if type(job.name) is not str or job.status is not JobStatus.PENDING:
        return (odd, finished, given_up, owner_silent, running)
    if job.next_run_at is None:
        return (*_WAITS, parked, undated)
    return _FUTURE if job.next_run_at > facts.now else _DUE


_WAITS: Sequence[Rule] = (awaits_signal, awaits_batch, awaits_turn)
_FUTURE: Sequence[Rule] = (sleeping, *_WAITS, backing_off, scheduled, delayed)
_DUE: Sequence[Rule] = (
    unclaimable,
    expired,
    paused,
    no_instance,
    no_worker,
    workers_off,
    limited,
    slots_full,
    just_due,
    awaits_name,
    polling,
)
