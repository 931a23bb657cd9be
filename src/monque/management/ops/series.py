"""Numbers over time."""

from __future__ import annotations

from pydantic import Field

from monque.management.ops.base import Answer, Dto, Moment, Question, Time
from monque.management.ops.failures import Window


class OpsTrendsQuery(Question):
    """The query of `GET /trends`."""

    name: str | None = None
    from_: Time | None = Field(None, alias="from")
    to: Time | None = None
    step: int | None = Field(None, ge=60_000, le=30 * 86_400_000, description="milliseconds")


class OpsLatencyQuery(Question):
    """The query of `GET /latency`; *from* and *to* instead of the window are of any length."""

    name: str | None = None
    window: Window = "1h"
    from_: Time | None = Field(None, alias="from")
    to: Time | None = None


class OpsMark(Dto):
    """The first start of a release."""

    at: Moment
    release: str


class OpsSeries(Dto):
    """Rows of numbers, one a step, in the order of *columns*; *partial* if the last step is not over."""

    from_: Moment = Field(alias="from")
    to: Moment
    step_ms: int
    columns: list[str]
    rows: list[list[int | str | None]]
    marks: list[OpsMark]
    partial: bool


class OpsSeriesAnswer(OpsSeries, Answer):
    """Numbers over time."""


class OpsPercentiles(Dto):
    """About how long it took, at most, for this share; left out without data."""

    p50_ms: float | None = None
    p90_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    count: int


class OpsHeat(Dto):
    """Percentiles over the whole window and for each step, and how many fell into which bucket."""

    percentiles: OpsPercentiles
    lines: list[OpsPercentiles]
    buckets: list[float] = Field(description="where each row's bucket begins, in milliseconds")
    matrix: list[list[int]] = Field(description="a row a bucket, a column a step")


class OpsLatency(Answer):
    """How long jobs waited, and how long they ran."""

    from_: Moment = Field(alias="from")
    to: Moment
    step_ms: int
    times: list[Moment]
    wait: OpsHeat
    run: OpsHeat
