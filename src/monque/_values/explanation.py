"""Why a job does not run, or did: the answer of `Monque.explain`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

Certainty: TypeAlias = Literal["certain", "likely"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One fact that an explanation rests on.

    Attributes:
        label: What it is about, such as "due since".
        value: The fact as text.
        link: What it leads to, for whoever draws links: `job:ID`, `instance:ID`, `queue:NAME` or
            `schedule:ID`.
        at: The moment that the text names, for whoever shows it in the reader's own time zone.
    """

    label: str
    value: str
    link: str | None = None
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """Something that would help.

    Attributes:
        label: What it is, for a button.
        action: The action of the management API that does it: `retry`, `run-now`, `stop`, `delete`,
            `reschedule`, `priority`, `resume` (the name) or `resume-schedule`.
        command: The command line that does it.
        link: Where to look, as in `Evidence`; `failures:NAME` are the failed jobs of a name.
    """

    label: str
    action: str | None = None
    command: str | None = None
    link: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a job does not run, or what it does instead of waiting.

    Attributes:
        code: The reason as a word for programs, such as `no-worker`; the guide lists them all.
        sentence: The reason in English.
        since: Since when it is so, by the server's clock; None if nobody knows.
        certainty: `certain`, or `likely` if there are instances that nobody can ask.
        evidence: What it rests on.
        remedies: What would help, the best first.
    """

    code: str
    sentence: str
    since: datetime | None = None
    certainty: Certainty = "certain"
    evidence: tuple[Evidence, ...] = ()
    remedies: tuple[Remedy, ...] = ()
