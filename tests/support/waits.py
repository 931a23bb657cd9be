"""Documents of jobs that have steps or wait, as a run leaves them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from monque._store.document import PARKED
from support.clocks import ago, ahead
from support.jobs import claimed, document

STEPS: list[dict[str, Any]] = [
    {"n": "charge", "k": "step", "at": ago(minutes=9), "ms": 12, "v": {"payment": 7}},
    {"n": "pause", "k": "sleep", "at": ago(minutes=8), "ms": 3, "until": ago(minutes=7)},
    {"n": "book", "k": "transaction", "at": ago(minutes=6), "ms": 30, "v": "booked"},
]
"""Steps that are done; the sleep among them has passed."""


def sleeping(until: datetime | None = None, **fields: Any) -> dict[str, Any]:
    """A job that sleeps until then, in the step `cool-off`."""
    end = until or ahead(days=3)
    entry = {"n": "cool-off", "k": "sleep", "at": ago(minutes=5), "ms": 40, "until": end}
    return _waiting({"why": "time"}, entry, end, fields)


def receiving(until: datetime | None = None, **fields: Any) -> dict[str, Any]:
    """A job that waits for the signal `picked-up`; *until* is its timeout."""
    end = {} if until is None else {"until": until}
    entry = {"n": "courier", "k": "signal", "at": ago(minutes=5), "ms": 40, **end}
    return _waiting({"why": "signal", "key": "picked-up"}, entry, until or PARKED, fields)


def _waiting(
    parked: dict[str, Any], entry: dict[str, Any], due: datetime, fields: dict[str, Any]
) -> dict[str, Any]:
    waits = {"nextRunAt": due, "parked": {**parked, "since": ago(minutes=5)}, "attempt": 1}
    return document(**{**waits, "steps": [*STEPS, entry], **fields})


def after_batch(label: str = "import-42", **fields: Any) -> dict[str, Any]:
    """A job that waits for the end of a batch."""
    parked = {"why": "batch", "key": label, "since": ago(minutes=5)}
    return document(**{"nextRunAt": PARKED, "parked": parked, "afterBatch": label, **fields})


def in_line(key: str = "customer-7", **fields: Any) -> dict[str, Any]:
    """A job that waits for its turn."""
    made = document(**{"nextRunAt": PARKED, **fields})
    line = f"{made['name']}\x1fk:s:{key}"
    parked = {"why": "turn", "key": line, "since": ago(minutes=5), "order": made["createdAt"]}
    return {"parked": parked, **made}


def with_turn(key: str = "customer-7", slot: int = 0, **fields: Any) -> dict[str, Any]:
    """A job that runs in its line."""
    return claimed("web-1", **{"turn": {"line": f"k:s:{key}", "slot": slot}, **fields})
