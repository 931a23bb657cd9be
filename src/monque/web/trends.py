"""Numbers over time: trends and latency."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any

from pydantic import Field

from monque import Histogram, Job, JobFilter, TrendPoint
from monque._views.text import id_text, iso, milliseconds
from monque.web.access.permissions import Action
from monque.web.desk import Desk
from monque.web.errors import NotOfferedError
from monque.web.instances import OpsMark, release_marks
from monque.web.route import route
from monque.web.serialization import WINDOWS, Answer, Dto, Moment, Question, Time, Window, known, range_of
from monque.web.text import is_text


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


class OpsSeries(Dto):
    """Rows of numbers, one for each step, ordered as *columns*; *partial* if the last step is not over."""

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
    """Estimates: half of the runs took *p50_ms* or less, and so on. They are left out without data."""

    p50_ms: float | None = None
    p90_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    count: int


class OpsHeat(Dto):
    """Percentiles over the whole window and for each step, and the number of runs in each bucket."""

    percentiles: OpsPercentiles
    lines: list[OpsPercentiles]
    buckets: list[float] = Field(description="where each row's bucket begins, in milliseconds")
    matrix: list[list[int]] = Field(description="one row for each bucket, one column for each step")


class OpsLatency(Answer):
    """Waiting times and run times of jobs."""

    from_: Moment = Field(alias="from")
    to: Moment
    step_ms: int
    times: list[Moment]
    wait: OpsHeat
    run: OpsHeat


class OpsKind(Dto):
    """The runs of one job name: how many, how long all of them took, and the longest that is still stored."""

    name: str
    runs: int
    total_ms: int
    share: float = Field(description="of the time that all runs took together, from 0 to 1")
    percentiles: OpsPercentiles
    longest_ms: int | None = None
    longest_job: str | None = None


class OpsKinds(Answer):
    """The runs of a window by job name, those that took most time first.

    The longest are looked for among the *looked_at* jobs that changed last; *capped* if there are more.
    """

    from_: Moment = Field(alias="from")
    to: Moment
    kinds: list[OpsKind]
    looked_at: int
    capped: bool


class OpsRecent(Dto):
    """The last 15 whole minutes of a job name: runs that completed in each, and about how long runs took."""

    completed: list[int]
    run_p95_ms: float | None = None


# The columns of a series; gauges are null where nobody counted.
_COLUMNS: Mapping[str, Callable[[TrendPoint], int | str | None]] = {
    "at": lambda point: iso(point.at),
    "completed": attrgetter("completed"),
    "retried": attrgetter("retried"),
    "failed": attrgetter("failed"),
    "cancelled": attrgetter("cancelled"),
    "snoozed": attrgetter("snoozed"),
    "ranMs": lambda point: milliseconds(point.ran_total),
    "waitedMs": lambda point: milliseconds(point.waited_total),
    "due": attrgetter("due"),
    "later": attrgetter("later"),
    "processing": attrgetter("processing"),
    "oldestDueMs": lambda point: None if point.oldest_due is None else milliseconds(point.oldest_due),
}
_SHARES = {"p50_ms": 0.5, "p90_ms": 0.9, "p95_ms": 0.95, "p99_ms": 0.99}


def percentiles(histogram: Histogram, longest: timedelta | None = None) -> OpsPercentiles:
    """About how long it took for these shares, at most; the *longest* run bounds those in the last bucket."""
    begin, _ = histogram.bounds(max(histogram.counts, default=0))
    most = timedelta.max if longest is None or longest < begin else longest
    times = {field: histogram.quantile(share) for field, share in _SHARES.items()}
    found = {field: _exact(min(time, most)) for field, time in times.items() if time is not None}
    return OpsPercentiles(count=histogram.count, **found)


def _exact(time: timedelta | None) -> float | None:
    """Milliseconds with their fractions."""
    return None if time is None else round(time.total_seconds() * 1000, 3)


def heat(histograms: Sequence[Histogram]) -> OpsHeat:
    """Percentiles over all steps and in each, and how many fell into which bucket."""
    total = sum(histograms, Histogram())
    buckets = range(min(total.counts, default=0), max(total.counts, default=-1) + 1)
    return OpsHeat(
        percentiles=percentiles(total),
        lines=[percentiles(each) for each in histograms],
        buckets=[_exact(Histogram.bounds(each)[0]) or 0.0 for each in buckets],
        matrix=[[each.counts.get(bucket, 0) for each in histograms] for bucket in buckets],
    )


def recent(points: Iterable[TrendPoint], since: datetime, steps: int) -> dict[str, OpsRecent]:
    """Return the ends in each of the steps from *since* on, by name; *points* are those of single names."""
    completed: dict[str, list[int]] = {}
    ran: dict[str, Histogram] = {}
    for point in points:
        name, place = str(point.name), (point.at - since) // point.step
        if 0 <= place < steps:
            completed.setdefault(name, [0] * steps)[place] += point.completed
            ran[name] = ran.get(name, Histogram()) + point.ran
    return {
        name: OpsRecent(completed=counts, **known(run_p95_ms=_exact(ran[name].quantile(0.95))))
        for name, counts in completed.items()
    }


# The step of each window: 60 points or more, and at most 180.
_STEP_MINUTES: dict[Window, int] = {"15m": 1, "1h": 1, "6h": 5, "24h": 15, "7d": 60, "30d": 360}
STEPS = {window: timedelta(minutes=step) for window, step in _STEP_MINUTES.items()}
_DEFAULT_WINDOW = timedelta(hours=1)
_LAST = datetime.max.replace(microsecond=0, tzinfo=UTC)


@route("GET", "/trends", tagged=True)
async def trends(desk: Desk, query: OpsTrendsQuery) -> OpsSeriesAnswer:
    """Numbers over time."""
    await desk.demand(Action.READ, query.name)
    _demand_trends(desk)
    since, until = range_of(query, _DEFAULT_WINDOW, desk.now())
    step = None if query.step is None else timedelta(milliseconds=query.step)
    series = await _series(desk, query.name, since, until, step)
    return OpsSeriesAnswer(**series.as_set())


@route("GET", "/latency")
async def latency(desk: Desk, query: OpsLatencyQuery) -> OpsLatency:
    """Waiting times and run times of jobs."""
    await desk.demand(Action.READ, query.name)
    _demand_trends(desk)
    since, until = range_of(query, WINDOWS[query.window], desk.now())
    usual = STEPS[query.window]
    points = await _points(desk, query.name, since, until, usual if query.from_ is None else None)
    return OpsLatency(
        **{"from": iso(points[0].at if points else since)},
        to=iso(until),
        step_ms=milliseconds(points[0].step if points else usual),
        times=[iso(point.at) for point in points],
        wait=heat([point.waited for point in points]),
        run=heat([point.ran for point in points]),
    )


@route("GET", "/latency/kinds")
async def latency_kinds(desk: Desk, query: OpsLatencyQuery) -> OpsKinds:
    """Run times by job name, and the longest run of each."""
    await desk.demand(Action.READ, query.name)
    _demand_trends(desk)
    since, until = range_of(query, WINDOWS[query.window], desk.now())
    since, until = since.replace(microsecond=0), _up_to_second(until)
    points = await desk.share(desk.monque.trends, name=query.name, since=since, until=until, by_name=True)
    ended = JobFilter(name=query.name, updated_after=since, updated_before=until)
    longest = await desk.share(
        desk.monque.slowest_jobs, ended, each_name=True, limit=_MOST_KINDS, payload_limit=0
    )
    by_name = {job.name: job for job in await desk.readable(longest.jobs) if is_text(job.name)}
    kinds = _kinds([point for point in points if await desk.may(Action.READ, point.name)], by_name)
    return OpsKinds(
        **{"from": iso(since)}, to=iso(until), kinds=kinds, looked_at=longest.looked_at, capped=longest.capped
    )


# As many names as trends count.
_MOST_KINDS = 500


def _kinds(points: Iterable[TrendPoint], longest: Mapping[str, Job[Any]]) -> list[OpsKind]:
    runs, ran = Counter[str](), defaultdict[str, Histogram](Histogram)
    totals = defaultdict[str, timedelta](timedelta)
    for point in points:
        name = str(point.name)
        runs[name] += point.ran.count
        totals[name] += point.ran_total
        ran[name] += point.ran
    whole = sum(totals.values(), timedelta(0))
    shown = []
    for name in sorted((each for each in runs if runs[each]), key=lambda each: (-totals[each], each)):
        job = longest.get(name)
        took = None if job is None or job.ran is None else milliseconds(job.ran)
        found = {} if job is None else known(longest_ms=took, longest_job=id_text(job.id))
        share = totals[name] / whole if whole else 0.0
        shown.append(
            OpsKind(
                name=name,
                runs=runs[name],
                total_ms=milliseconds(totals[name]),
                share=round(share, 4),
                percentiles=percentiles(ran[name], None if job is None else job.ran),
                **found,
            )
        )
    return shown


def _demand_trends(desk: Desk) -> None:
    if not desk.monque.companions["trends"]:
        raise NotOfferedError("No trends are stored here: see Options.trends.")


async def points_of(desk: Desk, name: str | None, window: Window) -> list[TrendPoint]:
    now = desk.now()
    return await _points(desk, name, now - WINDOWS[window], now, STEPS[window])


async def _points(
    desk: Desk, name: str | None, since: datetime, until: datetime, step: timedelta | None
) -> list[TrendPoint]:
    since, until = since.replace(microsecond=0), _up_to_second(until)
    return await desk.share(desk.monque.trends, name=name, since=since, until=until, step=step)


async def series_of(desk: Desk, name: str | None, window: Window) -> OpsSeries:
    now = desk.now()
    return await _series(desk, name, now - WINDOWS[window], now, STEPS[window])


async def _series(
    desk: Desk, name: str | None, since: datetime, until: datetime, step: timedelta | None
) -> OpsSeries:
    asked = desk.now()  # before the read: what ended in a step that is over by now may not be counted yet
    points = await _points(desk, name, since, until, step)
    step = points[0].step if points else step or timedelta(minutes=1)
    marks = [mark for mark in await release_marks(desk) if iso(since) <= mark.at <= iso(until)]
    return OpsSeries(
        **{"from": iso(points[0].at if points else since)},
        to=iso(until),
        step_ms=milliseconds(step),
        columns=list(_COLUMNS),
        rows=[[value(point) for value in _COLUMNS.values()] for point in points],
        marks=marks,
        partial=bool(points) and points[-1].at + step > asked,
    )


def _up_to_second(until: datetime) -> datetime:
    """The end of the second in which a range ends, so that those who ask within it share a read.

    Cut off instead, it would lose the newest minute for the first second of that minute.
    """
    until = min(until, _LAST)
    return until.replace(microsecond=0) + timedelta(seconds=until.microsecond > 0)
