"""Jobs of a FastAPI application that run in child processes, and one that says which trace it belongs to."""

from __future__ import annotations

import os

from opentelemetry import trace

from monque import Job
from monque.fastapi import JobRouter

jobs = JobRouter()


@jobs.job("triple", mode="process", store_result=True)
async def triple(job: Job[int]) -> list[int]:
    return [3 * job.data, os.getpid()]


def traced(job: Job[None]) -> str:
    current = trace.get_current_span().get_span_context()
    return f"{current.trace_id:032x} {current.span_id:016x}"
