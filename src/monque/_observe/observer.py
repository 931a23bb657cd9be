"""The interface of an observer: what metrics are made of."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

from monque._values.views import QueueDepth

Ending = Literal["completed", "retried", "failed", "cancelled", "snoozed", "waiting"]
"""The end of a run: it succeeded, it failed and is tried again, it failed for good, the job was cancelled,
its handler put it off (snoozed), or it waits in a durable step and goes on in a later run."""


class Observer:
    """Base class for metrics: override the methods that you need, and pass an object to `Monque.observe`.

    The methods are called on the event loop and must be quick. An error in one is logged and disturbs
    nothing.
    """

    def enqueued(self, name: str, count: int) -> None:
        """*count* jobs of this name were stored here; in a transaction, before it commits."""

    def ended(
        self,
        name: str,
        ending: Ending,
        *,
        waited: timedelta,
        ran: timedelta,
        error: BaseException | None,
    ) -> None:
        """A job of this name ran here, and how that ended is stored.

        Also called for a job that recovery gave up because the processes that ran it died too often. Then
        *error* is a `ProcessDiedError`, and both durations are zero, because nobody has measured them.

        Args:
            name: The job name.
            ending: completed, retried (it failed and is tried again), failed (for good), cancelled, snoozed
                or waiting: then the job goes on in a later run, and metrics count no run. Later releases may
                have more.
            waited: From the time it was due to the call of the handler.
            ran: How long the handler took; of a completed job that has waited, all of its runs together.
            error: What it raised; None if it was cancelled, snoozed or waits.
        """

    def surveyed(self, depths: Sequence[QueueDepth], *, collection: str) -> None:
        """All jobs that wait or run, by name; called now and then while this instance processes jobs.

        Each call replaces the numbers of the call before for this *collection* (`database.collection`).
        When the instance stops, it is called with an empty list.
        """

    def stuck(self, name: str, count: int) -> None:
        """*count* handlers of this name were told to stop over 30 seconds ago and still run.

        Called when the number changes, also back to 0.
        """

    def stalled(self, duration: timedelta) -> None:
        """The event loop was blocked for *duration*, by a handler or something else in this process.

        Called when the loop continues, if that took more than a second.
        """
