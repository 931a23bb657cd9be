"""The objects that all parts of an open instance share."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from typing import NamedTuple

from pymongo.errors import PyMongoError

from monque._engine.waits import Waits
from monque._observe.logs import logger_for
from monque._observe.telemetry import Telemetry
from monque._ops.companions import Companions
from monque._ops.trends import Tally
from monque._store.document import Document
from monque._store.store import Store
from monque._values.errors import ConfigurationError
from monque._values.events import EventBus, JobError
from monque._values.state import State
from monque._values.words import driver_reason

logger = logging.getLogger("monque")


class Context(NamedTuple):
    """The database, the listeners, the observers, what hooks have made, and who waits for the end of jobs.

    Options, clock and instance id belong to the store.
    """

    store: Store
    bus: EventBus
    telemetry: Telemetry
    state: State
    waits: Waits
    companions: Companions
    """The collections that are written for operators only."""
    documents: Callable[[object], AsyncGenerator[list[Document], None]]
    """Makes the documents of new jobs, in chunks, once all of them are checked; see `Job.run_jobs`."""
    tally: Tally | None = None
    """The counts of ended runs; None if nobody wants to know."""

    def log(self, level: int, text: str, *, error: BaseException | None = None, **fields: object) -> None:
        """Log a line of this instance's life."""
        instance_id = self.store.instance_id
        fields = {"instance_id": instance_id, **fields}
        shown = logger_for(level)
        message = "instance %s %s" if shown is logger else "monque: instance %s %s"
        shown.log(level, message, instance_id, text, exc_info=error, extra=fields)

    def report_failure(self, doing: str, error: PyMongoError | ConfigurationError) -> None:
        """Log and emit that a loop could not do its work, and tries again."""
        fields = {"instance_id": self.store.instance_id}
        logger.warning("%s failed, trying again: %s", doing, driver_reason(error), extra=fields)
        self.bus.emit(JobError(error=error))
