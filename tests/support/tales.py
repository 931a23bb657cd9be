"""Histories of a chaos run, told line by line, for tests of the checker."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from chaos.checker import check
from chaos.findings import Final, Violation
from chaos.history import Event
from chaos.rules import Rules

RULES = Rules(tolerance=4.0, max_retries=3)
# The server's clock, when the history begins at 0.
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC).timestamp()


class Tale:
    """A history as it is told: each line at its second."""

    def __init__(self) -> None:
        self.events = [Event(0.0, "conductor", "clock", 1, {"real": NOON})]
        self.jobs: dict[str, dict[str, Any]] = {}
        self.orders: set[str] = set()
        self.effects: list[str] = []
        self.schedules: list[dict[str, Any]] = []
        self.accounts: dict[str, int] = {}
        self.transfers: list[dict[str, Any]] = []

    def tell(self, t: float, who: str, kind: str, **facts: Any) -> None:
        pid = {"enqueuer": 20, "ann": 30, "bob": 40}.get(who, 1)
        self.events.append(Event(t, who, kind, pid, facts))

    def ask(self, t: float, token: str, *, how: str = "one-off", delay: float = 0.0, **asked: Any) -> None:
        facts = {"how": how, "name": "wait", "key": None, "delay": delay, **asked}
        self.tell(t, "enqueuer", "invoke", token=token, **facts)

    def invoked(self, token: str) -> dict[str, Any]:
        """What the call with this token said."""
        return next(each.facts for each in self.events if each.kind == "invoke" and each["token"] == token)

    def store(self, t: float, job: str, *, how: str = "one-off", delay: float = 0.0, **asked: Any) -> None:
        """Asked for and acknowledged at once; its token is its id."""
        self.ask(t, job, how=how, delay=delay, **asked)
        self.tell(t, "enqueuer", "ok", token=job, job=job, own=True, run_at=NOON + t + delay)

    def start(self, t: float, who: str, job: str, attempt: int = 1, **facts: Any) -> None:
        known = {"name": "wait", "token": job, "fail_count": 0, "run_at": NOON, "claimed_at": NOON + t}
        known |= {"snooze_count": 0, "job": job, "attempt": attempt}
        self.tell(t, who, "start", **{**known, **facts})

    def end(
        self, t: float, who: str, job: str, attempt: int = 1, outcome: str = "ok", why: str | None = None
    ) -> None:
        self.tell(t, who, "end", job=job, attempt=attempt, outcome=outcome, why=why)

    def snooze(self, t: float, who: str, job: str, attempt: int = 1, *, delay: float = 0.0) -> None:
        """A run of half a second that snoozes; it has snoozed with each run before."""
        self.start(t, who, job, attempt, snooze_count=attempt - 1)
        self.end(t + 0.4, who, job, attempt, "snooze")
        self.tell(t + 0.5, who, "snoozed", job=job, attempt=attempt, run_at=NOON + t + 0.5 + delay)

    def command(self, t: float, what: str, kind: str = "done", takes: float = 0.1, **facts: Any) -> None:
        """An operator wants something, and gets his answer."""
        number = len(self.events)
        asked = {name: facts[name] for name in ("job", "name") if name in facts}
        self.tell(t, "operator", "command", number=number, what=what, **asked)
        self.tell(t + takes, "operator", kind, number=number, what=what, **{"until": None, **facts})

    def complete(self, t: float, who: str, job: str, attempt: int = 1) -> None:
        self.tell(t, who, "completed", job=job, attempt=attempt)

    def did_not_complete(self, job: str) -> None:
        """Take back that it was told to be completed."""
        self.events = [each for each in self.events if each.kind != "completed" or each["job"] != job]

    def fail(self, t: float, who: str, job: str, attempt: int, *, will_retry: bool = True) -> None:
        count = {"fail_count": attempt, "run_at": NOON + t}
        self.tell(t, who, "failed", job=job, attempt=attempt, will_retry=will_retry, **count)

    def run(self, t: float, who: str, job: str, attempt: int = 1, **facts: Any) -> None:
        """From start to completion, within half a second."""
        self.start(t, who, job, attempt, **facts)
        self.end(t + 0.4, who, job, attempt)
        self.complete(t + 0.5, who, job, attempt)

    def failing(self, job: str, times: int) -> None:
        for attempt in range(1, times + 1):
            self.start(2.0 + attempt, "ann", job, attempt, fail_count=attempt - 1)
            self.end(2.1 + attempt, "ann", job, attempt, "error")
            self.fail(2.2 + attempt, "ann", job, attempt, will_retry=attempt != 3)

    def fault(self, since: float, until: float, *, whom: str | None) -> None:
        told = {"number": 1, "fault": "stop a worker"}
        self.tell(since, "conductor", "fault", **told)
        self.tell(since, "conductor", "injected", whom=whom, detail="", **told)
        self.tell(until, "conductor", "healed", whom=whom, detail="", **told)

    def found(self, job: str, status: str = "completed", **fields: Any) -> None:
        """What the database holds of it in the end; each of its failures is in its history."""
        known = {"name": "wait", "data": {"token": job}, "failCount": 0, "attempt": 1}
        times = {"nextRunAt": datetime.fromtimestamp(NOON, UTC)}
        history = [{"attempt": number, "outcome": "retried"} for number in _counted(fields)]
        self.jobs[job] = {"_id": job, "status": status, **known, **times, "history": history, **fields}

    def verdict(self) -> list[Violation]:
        about_users = self.orders, self.effects, self.schedules, self.accounts, self.transfers
        return check(self.events, Final(list(self.jobs.values()), *about_users), RULES)

    def only_violation(self) -> Violation:
        [violation] = self.verdict()
        return violation


def _counted(fields: dict[str, Any]) -> range:
    return range(1, fields.get("failCount", 0) + 1)


def clock(t: float) -> datetime:
    """The server's time at this second of the history."""
    return datetime.fromtimestamp(NOON + t, UTC)
