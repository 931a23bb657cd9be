"""The register of instances, as an instance may have left it."""

from __future__ import annotations

from typing import Any

from support.clocks import ago, now


def in_the_register(name: str, *workers: str, **fields: Any) -> dict[str, Any]:
    """An instance as it described itself; *fields* by their names on the wire."""
    return {
        "_id": name,
        "host": "box",
        "pid": 1,
        "startedAt": ago(hours=1),
        "seenAt": now(),
        "state": "running",
        "intervalMs": 30_000,
        "slots": 5,
        "busy": 0,
        "changeStream": "live",
        "workers": [{"name": each, "concurrency": 5, "active": 0, "off": False} for each in workers],
        "settings": {},
        **fields,
    }
