"""The rules about schedules with an interval, and the jobs that some of them store. No I/O."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from chaos.controls import CLOCK_LAG, is_in_doubt, next_command
from chaos.findings import Final, Violation, active_time
from chaos.history import Event
from chaos.ledger import JobRecord, Ledger, Run
from chaos.rules import EVERY, SCHEDULES, Rules
from chaos.stories import story
from tests.support.invariants import violations as broken_invariants

_PAUSES = ("pause schedule", "resume schedule")
# How far from now the next time of a schedule may be while nothing is broken: its interval, and what a busy
# machine adds. Half of it would blame such a machine; twice is the time that a recovery takes.
_SOON = 5.0
# How long before a time of its own a run may have been triggered and fall on that time by chance: one in a
# thousand does. Half of it would blame a run before it that took a little; with twice, less is checked.
_BY_CHANCE = 2.0


@dataclass(frozen=True, slots=True)
class _Rest:
    """A time in which a schedule was surely paused."""

    name: str
    since: float
    until: float

    def covers(self, t: float) -> bool:
        return self.since < t < self.until


def one_job_a_time(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """For a schedule and a planned time there is one job at most, and each has ended."""
    stored = _stored(final)
    counts = Counter((each["scheduleId"], each["plannedFor"]) for each in stored if not _is_extra(each))
    for (schedule, planned), count in counts.items():
        if count > 1:
            same = [str(each["_id"]) for each in stored if each["plannedFor"] == planned]
            says = f"{schedule} stored {count} jobs for {planned:%H:%M:%S.%f}"
            yield Violation("schedule", says, story(ledger, same))
    for each in stored:
        if each["status"] in ("pending", "processing"):
            says = f"{each['_id']}, stored by a schedule, is still {each['status']}"
            yield Violation("schedule", says, story(ledger, [str(each["_id"])]))


def nothing_while_paused(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """No own time of a schedule counts that comes after its pause returned, until somebody resumes it.

    The pause is a write on the schedule, so it needs no time to be known: what was claimed before goes on,
    and nothing is claimed, and no job planned, after it. Triggers count also while it is paused. Who resumes
    it takes the next time by his idea of the server's clock, which may be a little behind.
    """
    rests = list(_rests(ledger, rules))
    schedules = {each["_id"]: each for each in final.jobs if each["name"] in SCHEDULES and _is_schedule(each)}
    for each in _stored(final):
        planned = ledger.history_time(each["plannedFor"].timestamp())
        rest = None if _is_extra(each) else _pause_of(rests, each["name"], planned)
        if rest is not None and rest.covers(planned + CLOCK_LAG):
            says = f"{each['_id']} was planned for a time at which {each['name']!r} was paused"
            yield Violation("schedule", says, story(ledger, [str(each["_id"])]))
    for schedule in schedules.values():
        record = ledger.jobs.get(str(schedule["_id"]), JobRecord(""))
        for run in record.runs:
            rest = _pause_of(rests, schedule["name"], ledger.history_time(run.start["claimed_at"]))
            if rest is not None and not _is_triggered(ledger, run, schedule):
                after = run.start.t - rest.since
                says = f"run {run.attempt} of {schedule['name']!r} began {after:.3f} s after its pause"
                yield Violation("schedule", says, story(ledger, [record.job], around=run.start.t))


def _rests(ledger: Ledger, rules: Rules) -> Iterator[_Rest]:
    for done in ledger.of("done"):
        if done["what"] == "pause schedule" and not is_in_doubt(ledger, done["name"], done.t, _PAUSES):
            until = next_command(ledger, done["name"], done.t, _PAUSES)
            yield _Rest(done["name"], done.t + rules.clock_error, until - rules.clock_error)


def _pause_of(rests: list[_Rest], name: str, t: float) -> _Rest | None:
    return next((rest for rest in rests if rest.name == name and rest.covers(t)), None)


def _is_triggered(ledger: Ledger, run: Run, schedule: dict[str, Any]) -> bool:
    """Whether an operator wanted this run: its time is none of the schedule's own, or so by chance."""
    since_anchor = run.start["run_at"] - schedule["schedule"]["anchor"].timestamp()
    if round(since_anchor * 1000) % round(EVERY.total_seconds() * 1000):
        return True
    planned = ledger.history_time(run.start["run_at"])
    triggers = (event.t for event in _commands(ledger, "trigger schedule", schedule["name"]))
    return any(planned - _BY_CHANCE < t < planned for t in triggers)


def _commands(ledger: Ledger, what: str, name: str) -> list[Event]:
    return [event for event in ledger.of("command") if event["what"] == what and event["name"] == name]


def never_two_active(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """Of a schedule that skips, no two jobs were active at a time."""
    active = defaultdict(list)
    for each in _stored(final):
        record = ledger.jobs.get(str(each["_id"]))
        if each["name"] == "skipping" and record is not None and record.runs:
            active[each["scheduleId"]].append((active_time(record, each), record.job))
    for times in active.values():
        for (one, first), (other, second) in combinations(sorted(times), 2):
            if other[0] < one[1] and other[0] < other[1]:
                says = f"{first} and {second} of a schedule that skips were both active"
                yield Violation("schedule", says, story(ledger, [first, second]))


def goes_on(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """After the last fault each schedule waits for a time soon, has run again, and is sound."""
    schedules = {each["name"]: each for each in final.schedules}
    declared = {ledger.invoked[event["token"]]["name"] for event in ledger.of("ok")}
    for calm, seen in zip(ledger.of("calm"), ledger.of("seen"), strict=False):
        for name in sorted(declared.intersection(SCHEDULES)):
            for problem in _problems(ledger, schedules.get(name), calm, seen):
                yield Violation("schedule", f"{name!r} {problem}", story(ledger, [], around=seen.t))
            if not any(run.start["name"] == name and run.start.t > calm.t for _, run in ledger.runs()):
                says = f"{name!r} did not run any more after all was healed"
                yield Violation("schedule", says, story(ledger, [], around=seen.t))
    yield from (Violation("invariant", line) for line in broken_invariants(final.schedules))


def _problems(ledger: Ledger, schedule: dict[str, Any] | None, calm: Event, seen: Event) -> Iterator[str]:
    if schedule is None or schedule["status"] not in ("pending", "processing"):
        yield "has ended" if schedule is None else f"is {schedule['status']}"
        return
    off = schedule["nextRunAt"].timestamp() - ledger.server_time(seen.t)
    if abs(off) > _SOON:
        yield f"waits for a time {off:.1f} s from now"
    last = schedule.get("lastRunAt")
    if (-math.inf if last is None else ledger.history_time(last.timestamp())) < calm.t:
        yield "has not run since all was healed"


def _stored(final: Final) -> list[dict[str, Any]]:
    """The jobs that schedules have stored."""
    return [each for each in final.jobs if each.get("plannedFor") is not None]


def _is_extra(job: dict[str, Any]) -> bool:
    """Whether an operator triggered it: such a job is planned for the moment in which it is stored."""
    return bool(job.get("createdAt") == job["plannedFor"])


def _is_schedule(document: dict[str, Any]) -> bool:
    return document.get("repeatInterval") is not None and bool(document.get("schedule"))


RULES = [one_job_a_time, nothing_while_paused, never_two_active, goes_on]
