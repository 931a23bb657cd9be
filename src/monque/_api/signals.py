"""Sending signals to jobs; `Job.receive` is the other side."""

from __future__ import annotations

from typing import Any

from bson import ObjectId

from monque._api.enqueue import measured
from monque._api.jobs import Opened
from monque._connect.sessions import Session
from monque._store.document import Document, with_id
from monque._store.signals import holding, send, woken
from monque._store.transitions.transition import as_read
from monque._values.errors import ConfigurationError, driver_errors
from monque._values.flows import check_label
from monque._values.job import Job, id_of
from monque._values.rules import check_name, check_unique_key, ids_meant
from monque._workers.payload import encode
from monque._workers.workers import Worker


class Signalling(Opened):
    """The method to signal jobs; `Monque` has it."""

    async def signal(
        self,
        job: Job[Any] | Worker[Any] | ObjectId | str,
        name: str,
        data: Any = None,
        *,
        unique_key: str | None = None,
        id: str | None = None,  # noqa: A002 - part of the public API
        session: Session | None = None,
    ) -> bool:
        """Send a signal to a job: its handler gets it from `Job.receive`, which it may have to wait for.

        A signal that comes early waits in the job's document. It does not interrupt a handler that runs.

        Args:
            job: The job or its id; with a *unique_key*, its worker or its name.
            name: The signal that the handler waits for.
            data: The value to send; it is stored as a payload is.
            unique_key: The key of the job, if that is given by its worker or its name.
            id: Whatever tells this signal apart from others, such as the id of a webhook's event: sent twice,
                it is received once.
            session: As in `enqueue`: the signal is part of the caller's transaction.

        Returns:
            False if there is no such job, or it has ended.

        Raises:
            JobStateError: The job is a schedule; or the data is larger than `Options.max_result_size`; or
                the job has 100 signals, or 1 MiB of them, that it has not received.
            PayloadError: The data cannot be stored.
            ConfigurationError: An argument is wrong; the message names it.

        Examples:
            >>> await monque.signal(fulfil, "picked-up", {"by": "DHL"}, unique_key="order-7")
        """
        own = self._store()
        queries = _addressed(job, unique_key)
        name = check_label("the name of a signal", name)
        known = None if id is None else check_label("the id of a signal", id)
        value = encode(data, job_name=name)
        too_large = _too_large(measured(value, name), own.options.max_result_size)
        store, joined = (own, None) if session is None else own.join(session)
        how: dict[str, Any] = {"id": known, "too_large": too_large, "session": joined}
        with driver_errors("signal the job"):
            for query in queries:
                if (before := await send(store.collection, query, name, value, **how)) is not None:
                    self._processing.wake(woken(before, name, own.clock.now()), joined)
                    return True
        return False


def _too_large(size: int, limit: int) -> str | None:
    said = f"its data has {size:,} bytes as BSON; Options.max_result_size allows {limit:,}: store large data "
    return None if size <= limit else f"{said}elsewhere, and send where"


def _addressed(job: object, unique_key: str | None) -> list[Document]:
    """The queries that may find the job, the likeliest first."""
    if unique_key is None and not isinstance(job, Worker):
        by_id = [with_id(each) for each in ids_meant(id_of(job))]
        # Its name leads to its shard, unless somebody has renamed it since.
        named = as_read({"name": job.name}, ["name"]) if isinstance(job, Job) else None
        return by_id if named is None else [{**by_id[0], **named}, *by_id]
    if unique_key is None or isinstance(job, Job | ObjectId):
        raise ConfigurationError(
            "signal takes a job or its id, or a worker or its name together with unique_key=...; got a "
            f"{type(job).__name__} {'without' if unique_key is None else 'with'} unique_key"
        )
    name = job.name if isinstance(job, Worker) else check_name(job)
    return [holding(name, check_unique_key(unique_key))]
