"""What is known around a job, for the rules that say why it does not run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from monque._instances import Instance, InstanceWorker
from monque._job import Job
from monque._pause import Pause
from monque._schedule import Schedule
from monque._trends import Histogram


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A job of the same name that runs."""

    id: Any
    since: datetime
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What is known of other jobs; what nobody asked for, or could read, is None or empty."""

    ahead: int | None = None
    """How many due jobs of the name are before this one."""
    urgent_ahead: int = 0
    """How many of them have a higher priority."""
    is_capped: bool = False
    """Whether there are more of these than were counted."""
    longest: Running | None = None
    """The job of the name that has been running longest."""
    alike: int = 0
    """How many others failed with the same error."""
    per_minute: float | None = None
    """How many runs of the name ended in a minute, lately."""
    ran: Histogram = field(default_factory=Histogram)
    """How long runs of the name took."""
    waited: Histogram = field(default_factory=Histogram)
    """How long jobs of the name waited, once they were due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known around a job. Which of these are needed depends on its state."""

    now: datetime
    """The server's time."""
    silence: timedelta = timedelta(seconds=90)
    """How long the owner of this job may be silent before others take it."""
    ran: timedelta | None = None
    """How long its last run took."""
    is_claimable: bool = True
    """Whether a claim can be written into it. Others may have stored what the server cannot count on."""
    schedule: Schedule | None = None
    """What is known of a recurring job."""
    pause: Pause | None = None
    """The pause that keeps its name from running."""
    instances: tuple[Instance, ...] | None = ()
    """The register; None if it cannot be read."""
    strangers: tuple[str, ...] = ()
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
    """Whether all slots for jobs of this name are taken, on the instances that serve it."""
    serving = facts.serving(job.name)
    return bool(serving) and all(
        worker.active >= worker.concurrency or each.busy >= each.slots > 0 for each, worker in serving
    )


def alike(reason: object, others: Iterable[str]) -> int:
    """How many of these errors say the same, whatever numbers, ids and quoted texts they hold."""
    kind = _kind(str(reason))
    return sum(_kind(other) == kind for other in others)


def _kind(reason: str) -> str:
    return _PARTICULAR.sub("…", reason.partition("\n")[0])[:_LONGEST_KIND]


# The first characters of an error are enough to tell it from others.
_LONGEST_KIND = 200
_PARTICULAR = re.compile(r"'[^']*'|\"[^\"]*\"|\b[0-9a-f]{8,}\b|\d+", re.IGNORECASE)
