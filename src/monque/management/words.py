"""Cron expressions in plain words."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

from cronsim import CronSim, CronSimError

_ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
# Texts longer than this were never accepted by a scheduler: somebody else stored them.
_LONGEST = 200


@lru_cache(maxsize=256)  # a collection has few schedules
def words_of(cron: str) -> str | None:
    """What an expression says, such as "At 09:00, Monday through Friday"; None if it cannot be read."""
    if len(cron) > _LONGEST:
        return None
    try:
        return CronSim(_ALIASES.get(cron.strip().lower(), cron), datetime.now(UTC)).explain()
    except (CronSimError, ValueError, IndexError):
        return None
