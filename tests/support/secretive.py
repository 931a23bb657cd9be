"""Jobs that have a secret wherever a job can have one, each place with a marker of its own.

A new place is one line of `PLACES`: no answer, stream, trail, export or log may tell it.
"""

from __future__ import annotations

from typing import Any

from support.clocks import ago, ahead
from support.jobs import claimed, document
from support.waits import in_line

MARKER = "sesame"
"""Every marker begins with it."""


def marker(place: str) -> str:
    """The marker of one place: letters alone, because fingerprints leave numbers out."""
    return f"{MARKER}{place}"


PLACES: dict[str, dict[str, Any]] = {
    "payload": {
        "data": {
            "amount": 7,
            "note": marker("payload"),
            "deep": [{"uri": f"amqp://{marker('payload')}@host/x"}],
            marker("payload"): 1,
        }
    },
    "result": {"result": {"is": marker("result")}},
    "resulterror": {"resultError": marker("resulterror")},
    "reason": {"failReason": f"ValueError: {marker('reason')}"},
    "key": {"uniqueKey": marker("key")},
    "progress": {"progress": {"done": 1, "total": 2, "message": marker("progress"), "at": ago(seconds=1)}},
    "log": {"log": [{"at": ago(seconds=1), "level": "info", "text": marker("log")}]},
    "step": {
        "steps": [
            {"n": "charge", "k": "step", "at": ago(seconds=3), "v": {"is": marker("step")}},
            {"n": "courier", "k": "signal", "at": ago(seconds=2), "v": marker("signal")},
        ],
        "signals": [{"n": "courier", "at": ago(seconds=1), "v": marker("unreceived")}],
    },
    "line": {"turn": {"line": f"k:s:{marker('line')}", "slot": 0}},
    "cancel": {"cancel": {"by": "handler", "reason": marker("cancel"), "at": ago(seconds=1)}},
    "attempt": {
        "history": [
            {
                "attempt": 1,
                "by": "web-1",
                "startedAt": ago(seconds=9),
                "finishedAt": ago(seconds=8),
                "outcome": "failed",
                "error": "ValueError",
                "message": marker("attempt"),
                "trace": f"File x\n{marker('trace')}",
            }
        ]
    },
}
SEEN = {*map(marker, PLACES), *map(marker, ("trace", "word", "signal", "unreceived"))}
"""All markers that there are, for those who may see them."""


def secretive_jobs(name: str) -> dict[str, dict[str, Any]]:
    """Jobs of a name in every state, with all markers; the schedule is called so."""
    secret = {field: value for fields in PLACES.values() for field, value in fields.items()}
    key = secret.pop("uniqueKey")
    made = {
        # Its key is held by the next one: retrying it says so.
        "failed": document(status="failed", **secret, uniqueKey=key),
        "due": document(**secret, uniqueKey=key, nextRunAt=ago(hours=1)),
        # TypeScript stores the text of an error alone.
        "foreign": document(**{**secret, "status": "failed", "failReason": f"{marker('word')}: is no PIN"}),
        "waiting": {**in_line(marker("line"), **{**secret, "name": name}), "uniqueKey": f"{key}-4"},
        "running": claimed("web-1", **secret, uniqueKey=f"{key}-2"),
        "cancelled": document(status="cancelled", **secret),
        "completed": document(status="completed", **secret, finishedAt=ago(seconds=1)),
        "schedule": document(
            **secret, uniqueKey=f"{key}-3", repeatInterval="0 9 * * *", nextRunAt=ahead(hours=1)
        ),
    }
    return {state: {**each, "name": name} for state, each in made.items()}
