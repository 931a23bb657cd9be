"""A pause as users see it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Jobs of one name, or of all names, are not started, on no instance.

    Attributes:
        name: The job name; None if all names are paused.
        since: When it was set, by the server's clock. None in a control document that somebody wrote by
            hand without a date.
        until: When it ends by itself; None if only `resume` ends it.
        reason: What whoever set it gave as the reason, or None.
        by: Who set it: the id of the instance or, of the command line, the user and the machine, unless
            `pause` was told.
    """

    name: str | None
    since: datetime | None
    until: datetime | None = None
    reason: str | None = None
    by: str | None = None

    def is_over(self, now: datetime) -> bool:
        """Whether it has ended by itself at *now*."""
        return self.until is not None and self.until <= now
