"""`wait_for` and `result_of`: waiting for the end of a job, and what became of it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from monque._ended import JobCancelledError, JobFailedError
from monque._engine.waits import Waits
from monque._errors import JobNotFoundError, ResultError, WaitTimeoutError
from monque._job import id_of
from monque._rules import check_duration, ids_meant
from monque._status import JobStatus
from monque._store.document import Document, has_result, result_error_of, status_of
from monque._store.lazy_job import Read, to_job


async def ended(waits: Waits, job: object, timeout: timedelta | None) -> Document:
    """The document of the job, given by itself or its id, when it has ended."""
    given = id_of(job)
    if timeout is not None:
        check_duration("timeout", timeout)
    if not (ids := ids_meant(given)):
        raise JobNotFoundError(str(given))
    limit = asyncio.timeout(None if timeout is None else timeout.total_seconds())
    try:
        async with limit:
            return await waits.until_ended(given, ids)
    except TimeoutError:
        if timeout is None or not limit.expired():
            raise
        raise WaitTimeoutError(job_id=given, timeout=timeout) from None


def result_in(document: Document, read: Read) -> Any:
    """The result of a job that has ended, or the error that says why there is none."""
    job = to_job(document, read)
    if status_of(document) is JobStatus.FAILED:
        raise JobFailedError(job)
    if status_of(document) is JobStatus.CANCELLED:
        raise JobCancelledError(job)
    if has_result(document):
        return job.result
    why = result_error_of(document) or (
        "it was completed, and no result was stored; set store_result=True for the worker or the call, or "
        "give one to complete_in(..., result=...)"
    )
    raise ResultError(f"job {job.id} ({job.name!r}) has no result: {why}", job_id=job.id)
