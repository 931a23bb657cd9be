"""What a call with a unique key wants if its job is there already, as the writes need it."""

from __future__ import annotations

from dataclasses import dataclass

from monque._unique import OnConflict, Until


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of one call; a call that only keeps what is there has none. Durations are milliseconds."""

    on_conflict: OnConflict = "keep"
    until: Until = "done"
    says_time: bool = False
    """The call says when the job is due: else one that waits keeps its time."""
    wait: int | None = None
    """Debounce: due this long after the last call."""
    max_wait: int | None = None
    """Debounce: due at most this long after the first call."""
    expires_after: int | None = None
    """How long after it is due the job is not worth running any more."""
    window: int | None = None
    """At most one call is accepted within this time."""

    @property
    def replaces(self) -> bool:
        """Whether a job that waits gets the payload and the settings of this call."""
        return self.on_conflict == "replace"

    @property
    def runs_again(self) -> bool:
        """Whether a job that runs will run once more for this call."""
        return self.replaces or self.until == "start"
