"""What a run amounted to, for people and for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from chaos.findings import Violation
from chaos.history import Event
from chaos.rules import CALLBACK, DEAD, FLEETING, LIMITED, SCHEDULES, UNDONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The numbers of a run."""

    seed: int
    seconds: float
    jobs: dict[str, int]
    """Acknowledged, by how they were stored."""
    unacknowledged: int
    runs: int
    older_runs: int
    """Those in processes of an older version."""
    completions: int
    retries: int
    given_up: int
    snoozes: int
    cancelled: int
    time_limits: int
    """Runs that were told to stop because they took too long."""
    pauses: int
    steps: dict[str, int]
    """Of jobs with steps: functions called, checkpoints known, waits, signals received and timed out."""
    flows: dict[str, int]
    """Runs of names with limits, of what follows batches and failures, children waited for, jobs not kept."""
    schedules: dict[str, int]
    """What operators did to schedules, and the runs of those with an interval."""
    recoveries: int
    claims_lost: int
    rollbacks: int
    faults: dict[str, int]
    longest_silence: float
    """The longest time without a completed job, while there was a fault or just after."""
    silence_by_fault: dict[str, float]
    violations: list[Violation]

    def text(self) -> str:
        """For people."""
        lines = [
            f"seed {self.seed}, {self.seconds:.0f} s",
            f"jobs enqueued      {sum(self.jobs.values())} ({_counts(self.jobs)}); "
            f"{self.unacknowledged} not acknowledged",
            f"runs               {self.runs}: {self.completions} completed, {self.retries} retried, "
            f"{self.given_up} failed for good",
            *([f"older version      {self.older_runs} of these runs"] if self.older_runs else []),
            f"control            {self.snoozes} snoozes, {self.cancelled} cancelled, "
            f"{self.time_limits} time limits, {self.pauses} pauses",
            f"steps              {_counts(self.steps)}",
            f"flows              {_counts(self.flows)}",
            f"schedules          {_counts(self.schedules)}",
            f"recoveries         {self.recoveries} jobs of dead owners; {self.claims_lost} claims told lost",
            f"faults injected    {sum(self.faults.values())}; {self.rollbacks} rollbacks of a member",
            *(
                f"  {count:>4} x {kind:<46} longest without progress {self.silence_by_fault[kind]:5.1f} s"
                for kind, count in sorted(self.faults.items())
            ),
            f"without progress   {self.longest_silence:.1f} s at the longest",
            f"violations         {len(self.violations)}",
        ]
        return "\n".join([*lines, *_stories(self.violations)])

    def write(self, path: Path) -> None:
        """For programs."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")


def report(events: list[Event], violations: list[Violation], *, seed: int, rollbacks: int) -> Report:
    """Count what the history tells."""
    kinds = Counter(event.kind for event in events)
    older = {event["whose_pid"] for event in events if event.kind == "up" and event.get("older")}
    how = {event["token"]: event["how"] for event in events if event.kind == "invoke"}
    stored = {event["job"]: how[event["token"]] for event in events if event.kind == "ok" and event["own"]}
    failed = Counter(event["will_retry"] for event in events if event.kind == "failed")
    silence = list(_silences(events))
    by_fault: dict[str, float] = {}
    for fault, seconds in silence:
        by_fault[fault] = max(seconds, by_fault.get(fault, 0.0))
    return Report(
        seed=seed,
        seconds=events[-1].t - events[0].t,
        jobs=dict(Counter(stored.values())),
        unacknowledged=kinds["doubt"],
        runs=kinds["start"],
        older_runs=sum(event.pid in older for event in events if event.kind == "start"),
        completions=kinds["completed"],
        retries=failed[True],
        given_up=failed[False],
        snoozes=kinds["snoozed"],
        cancelled=kinds["cancelled"],
        time_limits=sum(event.get("why") == "timeout" for event in events if event.kind == "end"),
        pauses=sum(event["what"] == "pause" for event in events if event.kind == "done"),
        steps=dict(_about_steps(events)),
        flows=dict(_about_flows(events)),
        schedules=dict(_about_schedules(events)),
        recoveries=sum(event["count"] for event in events if event.kind == "recovered"),
        claims_lost=kinds["lost"],
        rollbacks=rollbacks,
        faults=dict(Counter(event["fault"] for event in events if event.kind == "injected")),
        longest_silence=max((seconds for _, seconds in silence), default=0.0),
        silence_by_fault=by_fault,
        violations=violations,
    )


def _about_steps(events: list[Event]) -> Counter[str]:
    """How often the functions of steps were called, what is known to be stored, and what runs waited for."""
    kinds = Counter(event.kind for event in events)
    received = [event["value"] for event in events if event.kind == "received"]
    return Counter(
        {
            "calls": kinds["step"],
            "known": kinds["stored"],
            "waits": sum(event.get("why") == "waiting" for event in events if event.kind == "end"),
            "received": len(received) - received.count(None),
            "timed out": received.count(None),
        }
    )


def _about_flows(events: list[Event]) -> Counter[str]:
    """How often handlers ran that limits, batches and failures are about."""
    names = Counter(event["name"] for event in events if event.kind == "start")
    gathered = [event["value"] for event in events if event.kind == "gathered"]
    return Counter(
        {
            "limited": sum(names[name] for name in LIMITED),
            "callbacks": names[CALLBACK],
            "children": sum(map(len, gathered)),
            "follow-ups": names[DEAD] + names[UNDONE],
            "not kept": names[FLEETING],
        }
    )


def _about_schedules(events: list[Event]) -> Counter[str]:
    """Pauses, resumes and triggers, and the runs by name."""
    done = (event["what"].split() for event in events if event.kind == "done")
    return Counter(f"{what[0]}s" for what in done if what[-1] == "schedule") + Counter(
        f"{event['name']} runs" for event in events if event.kind == "start" and event["name"] in SCHEDULES
    )


def _silences(events: list[Event]) -> Iterator[tuple[str, float]]:
    """For each fault the longest gap between completions that has to do with it.

    Those from when it was injected until the first completion after it was healed.
    """
    progress = [event.t for event in events if event.kind == "completed"]
    healed = {event["number"]: event.t for event in events if event.kind == "healed"}
    for event in events:
        if event.kind == "fault":
            until = healed.get(event["number"], events[-1].t)
            gaps = [
                after - before for before, after in pairwise(progress) if after > event.t and before < until
            ]
            yield event["fault"], max(gaps, default=0.0)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))


def _stories(violations: Iterable[Violation]) -> Iterator[str]:
    for violation in violations:
        yield f"\n{violation.rule}: {violation.says}"
        yield from (f"  {line}" for line in violation.story)
