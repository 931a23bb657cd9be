"""The reasons of jobs that are due: what stands in their way?"""

from __future__ import annotations

import difflib
import shlex
from datetime import timedelta
from typing import Any

from monque._english import amount, clock, listed, span
from monque._explanation import Evidence, Explanation, Remedy
from monque._instances import Instance
from monque._job import Job
from monque._reasons.facts import Facts, is_full
from monque._reasons.words import (
    DOCTOR,
    START,
    UNREADABLE,
    ago,
    but_strangers,
    certainty,
    delete,
    due_evidence,
    id_of,
    label,
    shortened,
    waited,
    who,
)

# A job that is due for less long than this has not waited yet. With half of it, a busy machine would look
# broken; with twice, an operator waits for an answer in vain.
_MOMENT = timedelta(seconds=5)

# A job waits for unusually long beyond this many times what 95 % of its kind wait. Half of it would include
# many that are fine; twice, few that are not.
_USUAL_WAITS = 3


def expired(job: Job[Any], facts: Facts) -> Explanation | None:
    if job.expires_at is None or job.expires_at > facts.now:
        return None
    return Explanation(
        code="expired",
        sentence=f"It expired{ago(job.expires_at, facts)} and will not run: "
        "the next worker that comes to it cancels it.",
        since=job.expires_at,
        evidence=due_evidence(job, facts),
        remedies=(delete(job),),
    )


def paused(job: Job[Any], facts: Facts) -> Explanation | None:
    pause = facts.pause
    if pause is None:
        return None
    what = "all job names" if pause.name is None else pause.name
    why = "" if pause.reason is None else f' ("{shortened(pause.reason)}")'
    until = "" if pause.until is None else f", until {clock(pause.until, facts.now)}"
    target = "--all" if pause.name is None else shlex.quote(pause.name)
    operator = who(pause.by, facts) or "Somebody"
    return Explanation(
        code="paused",
        sentence=f"{operator} paused {what}{ago(pause.since, facts)}{why}{until}.",
        since=pause.since,
        evidence=due_evidence(job, facts),
        remedies=(Remedy(label="Resume it", action="resume", command=f"monque resume {target}"),),
    )


def no_instance(job: Job[Any], facts: Facts) -> Explanation | None:
    if facts.instances is None or facts.live:
        return None
    seen = max((each.seen_at for each in facts.instances if each.seen_at is not None), default=None)
    since = "yet" if seen is None else f"since {clock(seen, facts.now)}"
    return Explanation(
        code="no-instance",
        sentence=f"No instance has reported {since}{but_strangers(facts)}.",
        since=seen,
        certainty=certainty(facts),
        evidence=(*due_evidence(job, facts), *_silent(facts)),
        remedies=(START, DOCTOR),
    )


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
    return Explanation(
        code="no-worker",
        sentence=f"{nobody}{' a' if count > 1 else ''} worker for {job.name}{but_strangers(facts)}.{hint}",
        since=job.next_run_at,
        certainty=certainty(facts),
        evidence=(*due_evidence(job, facts), *_served(facts)),
        remedies=(
            Remedy(
                label="Start a worker for it",
                command=f"monque worker MODULE:ATTR --only {shlex.quote(job.name)}",
            ),
            delete(job),
        ),
    )


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
    return Explanation(
        code="workers-off",
        sentence=f"{'; '.join(parts)}{but_strangers(facts)}.",
        since=job.next_run_at,
        certainty=certainty(facts),
        evidence=due_evidence(job, facts),
        remedies=(
            Remedy(
                label="Start a worker for it",
                command=f"monque worker MODULE:ATTR --only {shlex.quote(job.name)}",
            ),
        ),
    )


def limited(job: Job[Any], facts: Facts) -> Explanation | None:
    """Jobs with a higher priority stand before it. That counts only where there are too few slots."""
    around = facts.around
    if not is_full(job, facts) or not around.ahead or around.urgent_ahead * 2 < around.ahead:
        return None
    have = "has" if around.urgent_ahead == 1 else "have"
    before = amount(around.ahead, "job", at_least=around.is_capped)
    return Explanation(
        code="limited",
        sentence=f"{around.urgent_ahead:,} of the {before} before it {have} a higher priority, and "
        f"{_busy_slots(job, facts)}{_how_soon(facts)}.",
        since=job.next_run_at,
        certainty=certainty(facts),
        evidence=(*due_evidence(job, facts), Evidence(label="its priority", value=str(job.priority))),
        remedies=(
            Remedy(
                label="Give it a higher priority",
                action="priority",
                command=f"monque jobs priority 9 {id_of(job)}",
            ),
        ),
    )


def slots_full(job: Job[Any], facts: Facts) -> Explanation | None:
    if not is_full(job, facts):
        return None
    around = facts.around
    before = amount(around.ahead or 0, "job", at_least=around.is_capped)
    are = "is" if around.ahead == 1 else "are"
    ahead = f"; {before} {are} before it{_how_soon(facts)}" if around.ahead else "; it is the next one"
    busy = _busy_slots(job, facts)
    return Explanation(
        code="slots-full",
        sentence=f"{busy[0].upper()}{busy[1:]}{ahead}.{_longest(facts)}",
        since=job.next_run_at,
        certainty=certainty(facts),
        evidence=(*due_evidence(job, facts), *_longest_evidence(facts)),
        remedies=(
            Remedy(label="Start another instance", command="monque worker MODULE:ATTR"),
            Remedy(
                label="Let it come first",
                action="priority",
                command=f"monque jobs priority 9 {id_of(job)}",
            ),
        ),
    )


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
    return Explanation(
        code="just-due",
        sentence=f"It became due {span(wait)} ago{usually}.",
        since=job.next_run_at,
        evidence=due_evidence(job, facts),
    )


def polling(job: Job[Any], facts: Facts) -> Explanation | None:
    serving = [each for each, _ in facts.serving(job.name)]
    if not serving or any(each.change_stream == "live" for each in serving):
        return None
    pause = min((wait for each in serving if (wait := _poll_interval(each))), default=None)
    often = "look from time to time" if pause is None else f"look every {span(pause)}"
    is_enough = pause is not None and waited(job, facts) <= pause + _MOMENT
    return Explanation(
        code="polling",
        sentence=f"No change stream: instances {often}.",
        since=job.next_run_at,
        certainty="certain" if is_enough else "likely",
        evidence=due_evidence(job, facts),
        remedies=(Remedy(label="See why there is no change stream", command="monque doctor"),),
    )


def _poll_interval(instance: Instance) -> timedelta | None:
    stored = instance.settings.get("poll_interval")
    return stored if isinstance(stored, timedelta) else None


def unclear(job: Job[Any], facts: Facts) -> Explanation:
    register = () if facts.instances is not None else (UNREADABLE,)
    return Explanation(
        code="unclear",
        sentence="Nothing that we can see stands in its way.",
        since=job.next_run_at,
        certainty="likely",
        evidence=(*due_evidence(job, facts), *register),
        remedies=(DOCTOR,),
    )
