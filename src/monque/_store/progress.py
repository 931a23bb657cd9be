"""Reports of running jobs, as they are stored: `progress` and `log`, and the update that writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from monque._store.document import LARGEST_WITH_HISTORY, Claim, Document, array, subdocuments, time_of
from monque._store.transitions.run import ALIVE_NOW
from monque._store.transitions.transition import Transition, by_id, owned
from monque._values.history import MOST_LINES, LogLine, Progress, Report, as_amount
from monque._values.status import JobStatus

_OWN = "$$own.log"
_KEPT = {"$slice": [{"$concatArrays": [array("$log"), _OWN]}, -MOST_LINES]}
# A document must stay small enough to be settled and claimed: without room, no line is added.
_HAS_ROOM = {"$lt": [{"$add": [{"$bsonSize": "$$ROOT"}, {"$bsonSize": {"log": _OWN}}]}, LARGEST_WITH_HISTORY]}
_LOG = {
    "$cond": [{"$and": [{"$ne": [_OWN, []]}, _HAS_ROOM]}, _KEPT, {"$ifNull": ["$log", "$$REMOVE"]}],
}
_PROGRESS = {"$ifNull": ["$$own.progress", {"$ifNull": ["$progress", "$$REMOVE"]}]}


def report(claims: Sequence[Claim], reports: Sequence[Report]) -> Transition:
    """processing -> processing, alive, with what each job has reported. The claims are of one attempt."""
    ids = [claim.id for claim in claims]
    own = by_id(ids, [stored_report(each) for each in reports])
    return Transition(
        to=JobStatus.PROCESSING,
        when=owned(claims[0].claimed_by, claims[0].attempt),
        then=[
            {
                "$set": {
                    **ALIVE_NOW,
                    "progress": {"$let": {"vars": {"own": own}, "in": _PROGRESS}},
                    "log": {"$let": {"vars": {"own": own}, "in": _LOG}},
                }
            }
        ],
    )


def stored_report(given: Report) -> Document:
    """Return the report of a job, as it is stored."""
    progress = None if given.progress is None else _stored_progress(given.progress)
    return {"progress": progress, "log": [_stored_line(line) for line in list(given.lines)]}


def _stored_progress(progress: Progress) -> Document:
    total = None if progress.total is None else float(progress.total)
    fields = {"done": float(progress.done), "total": total, "message": progress.message, "at": progress.at}
    return {name: value for name, value in fields.items() if value is not None}


def _stored_line(line: LogLine) -> Document:
    return {"at": line.at, "level": line.level, "text": line.text}


def progress_of(document: Mapping[str, Any]) -> Progress | None:
    """Return the progress of a job. Others may have written it: what is no progress is None."""
    stored = document.get("progress")
    done = as_amount(stored.get("done")) if isinstance(stored, dict) else None
    if not isinstance(stored, dict) or done is None:
        return None
    message = stored.get("message")
    return Progress(
        done=done,
        total=as_amount(stored.get("total")),
        message=message if isinstance(message, str) else None,
        at=time_of(stored, "at"),
    )


def log_of(document: Mapping[str, Any]) -> tuple[LogLine, ...]:
    """The log of the job."""
    return tuple(map(_line, subdocuments(document, "log")))


def _line(line: Mapping[str, Any]) -> LogLine:
    text = {field: "" if line.get(field) is None else str(line[field]) for field in ("level", "text")}
    at: datetime | None = time_of(line, "at")
    return LogLine(at=at, level=text["level"], text=text["text"])
