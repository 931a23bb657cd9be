"""The history in the order of jobs: what was asked for, each run, and what was told about it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from chaos.history import Event

# The calls whose jobs may run again after they were completed.
_AGAIN = ("schedule", "latest")


@dataclass(slots=True)
class Run:
    """One call of a handler."""

    start: Event
    end: float
    """When the handler ended, or its process; for ever, if neither is known."""
    outcome: str | None
    why: str | None = None
    """Why the handler was told to stop, if it was."""
    begun: float = math.inf
    """The start as the instance told it; the thread may begin much later on a busy machine."""
    last_beat: float = -math.inf
    beats: list[float] = field(default_factory=list)
    """When those heartbeats were sent that the server is known to have stored."""

    @property
    def attempt(self) -> int:
        return int(self.start["attempt"])

    def beaten_before(self, t: float) -> float:
        """When at the latest its claim is known to have been fresh, before *t*."""
        return max([self.last_beat, *(beat for beat in self.beats if beat < t)])


@dataclass(slots=True)
class JobRecord:
    """Everything about one job."""

    job: str
    acknowledged: list[Event] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    completed: list[Event] = field(default_factory=list)
    failed: list[Event] = field(default_factory=list)
    snoozed: list[Event] = field(default_factory=list)
    cancelled: list[Event] = field(default_factory=list)
    """What workers told, and what operators were told."""
    requested: list[Event] = field(default_factory=list)
    """What operators were told: it runs, and will be stopped."""
    revived_after: list[int] = field(default_factory=list)
    """The attempts after which operators retried it: these counts begin anew, and it may run again."""
    commands: list[Event] = field(default_factory=list)
    """What operators wanted of it, whether it was done or not."""
    is_in_doubt: bool = False
    """Whether an operator does not know if the job was retried: it may have been, at any later time."""

    def life_of(self, attempt: int) -> int:
        """How often it had been retried by operators before this attempt."""
        return sum(1 for last in self.revived_after if last < attempt)

    def runs_after(self, end: Event) -> list[Run]:
        """The runs after it had ended with this attempt, and no operator had retried it."""
        life = self.life_of(end["attempt"])
        return [
            run for run in self.runs if run.attempt > end["attempt"] and self.life_of(run.attempt) == life
        ]

    @property
    def given_up(self) -> list[Event]:
        return [event for event in self.failed if not event["will_retry"]]


class Ledger:
    """The whole history, by job and by token."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events
        self._clock: list[tuple[float, float]] = [
            (event.t, event["real"] - event.t) for event in events if event.kind == "clock"
        ]
        self.invoked = {event["token"]: event for event in self.of("invoke")}
        self.deaths = {event["whose_pid"]: event.t for event in self.of("down")}
        self._older = {event["whose_pid"] for event in self.of("up") if event.get("older")}
        self._stalls = [(stall.pid, float(stall["since"]), stall.t) for stall in self.of("stall")]
        self.jobs: dict[str, JobRecord] = {}
        self._fill()
        self._stalls += self._unreported_stalls()

    def of(self, *kinds: str) -> list[Event]:
        """The lines of these kinds."""
        return [event for event in self.events if event.kind in kinds]

    def server_time(self, t: float) -> float:
        """What the server's clock said at *t*.

        All servers are on this machine, so their clock is the real one, whatever the processes that
        were told a wrong time believe.
        """
        place = bisect_right(self._clock, (t, math.inf)) - 1
        return t + self._clock[max(place, 0)][1]

    @property
    def last_time(self) -> float:
        """What the server's clock said when the workers were told to stop: nothing may start after it."""
        idle = self.of("idle")
        return self.server_time(idle[-1].t if idle else self.events[-1].t)

    def history_time(self, server_time: float) -> float:
        """When it was *server_time* on the server's clock."""
        t = server_time - self._clock[0][1]
        return t - (self.server_time(t) - server_time)

    def runs(self) -> Iterable[tuple[JobRecord, Run]]:
        """Every run of every job."""
        return ((record, run) for record in self.jobs.values() for run in record.runs)

    def is_recurring(self, record: JobRecord) -> bool:
        """Whether it runs again and again: by a schedule, or for later calls with its key."""
        return any(self.invoked[event["token"]]["how"] in _AGAIN for event in record.acknowledged)

    @property
    def has_older(self) -> bool:
        """Whether processes of an older version took part."""
        return bool(self._older)

    def is_older(self, run: Run) -> bool:
        """Whether an older version called the handler, which keeps fewer promises."""
        return run.start.pid in self._older

    def ran_older(self, record: JobRecord) -> bool:
        """Whether an older version ran the job at least once."""
        return any(map(self.is_older, record.runs))

    def asked(self, record: JobRecord) -> dict[str, Any]:
        """What the call that stored it said about it; nothing, if nobody knows which call that was."""
        tokens = [event["token"] for event in record.acknowledged if event["own"]]
        tokens += [run.start["token"] for run in record.runs]
        return next((self.invoked[token].facts for token in tokens if token in self.invoked), {})

    def stalled(self, pid: int, since: float, until: float) -> bool:
        """Whether the event loop of this process stood still at a moment of this time."""
        return any(whose == pid and began <= until and ended >= since for whose, began, ended in self._stalls)

    def _unreported_stalls(self) -> Iterable[tuple[int, float, float]]:
        """The stalls of processes that died while a handler blocked their event loop."""
        for _, run in self.runs():
            if run.start.get("name") == "block" and run.outcome is None:
                yield run.start.pid, run.start.t, self.deaths.get(run.start.pid, math.inf)

    def _record(self, job: str) -> JobRecord:
        return self.jobs.setdefault(job, JobRecord(job))

    def _fill(self) -> None:
        open_runs: dict[tuple[str, int, int], Run] = {}
        begun: dict[tuple[str, int, int], float] = {}
        beats: dict[tuple[str, int], list[float]] = defaultdict(list)
        for event in self.events:
            match event.kind:
                case "ok" | "called":
                    self._record(event["job"]).acknowledged.append(event)
                case "begun":
                    begun[event["job"], event["attempt"], event.pid] = event.t
                case "start":
                    end = self.deaths.get(event.pid, math.inf)
                    run = Run(event, end, None, last_beat=self.history_time(event["claimed_at"]))
                    key = event["job"], event["attempt"], event.pid
                    run.begun = begun.get(key, event.t)
                    open_runs[key] = run
                    self._record(event["job"]).runs.append(run)
                case "end":
                    run = open_runs[event["job"], event["attempt"], event.pid]
                    run.end, run.outcome, run.why = event.t, event["outcome"], event.get("why")
                case "completed":
                    self._record(event["job"]).completed.append(event)
                case "failed":
                    self._record(event["job"]).failed.append(event)
                case "snoozed":
                    self._record(event["job"]).snoozed.append(event)
                case "cancelled":
                    self._record(event["job"]).cancelled.append(event)
                case "command" | "done" | "doubtful" if event.get("job") is not None:
                    self._operated(self._record(event["job"]), event)
                case "beat":
                    for claim in event["claims"]:
                        beats[claim, event.pid].append(event["sent"])
                case _:
                    pass
        self._set_beats(beats)

    def _operated(self, record: JobRecord, event: Event) -> None:
        """What an operator did to a job."""
        what, status = event["what"], event.get("status")
        if event.kind == "command":
            record.commands.append(event)
        elif event.kind == "doubtful":
            record.is_in_doubt |= what == "retry"
        elif what == "retry":
            record.revived_after.append(event["attempt"])
        elif status == "cancelled":
            record.cancelled.append(event)
        elif status == "processing":
            record.requested.append(event)

    def _set_beats(self, beats: dict[tuple[str, int], list[float]]) -> None:
        for record, run in self.runs():
            run.beats = beats[f"{record.job}/{run.attempt}", run.start.pid]
