"""Numbers over time: trends and latency."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from monque import TrendPoint
from monque.management.actions import Action
from monque.management.actor import Caller
from monque.management.errors import BadRequestError, NotOfferedError
from monque.management.ops import (
    OpsLatency,
    OpsLatencyQuery,
    OpsSeries,
    OpsSeriesAnswer,
    OpsTrendsQuery,
    Window,
)
from monque.management.series import COLUMNS, heat, row_of
from monque.management.surface.instances import Instances
from monque.management.values import iso, milliseconds
from monque.management.windows import WINDOWS

# The step of each window: 60 points or more, and at most 180.
STEPS: dict[Window, timedelta] = {
    "15m": timedelta(minutes=1),
    "1h": timedelta(minutes=1),
    "6h": timedelta(minutes=5),
    "24h": timedelta(minutes=15),
    "7d": timedelta(hours=1),
    "30d": timedelta(hours=6),
}
_DEFAULT_WINDOW = timedelta(hours=1)
_FIRST = datetime.min.replace(tzinfo=UTC)
_LAST = datetime.max.replace(microsecond=0, tzinfo=UTC)


class Numbers(Instances):
    """`/trends` and `/latency`."""

    async def ops_trends(self, caller: Caller, query: OpsTrendsQuery) -> OpsSeriesAnswer:
        """`GET /trends`."""
        await self._demand(caller, Action.READ, query.name)
        self._demand_trends()
        since, until = self._range(query, _DEFAULT_WINDOW)
        step = None if query.step is None else timedelta(milliseconds=query.step)
        series = await self._series(query.name, since, until, step)
        return OpsSeriesAnswer(**series.as_set(), server_time=iso(self._now()))

    async def ops_latency(self, caller: Caller, query: OpsLatencyQuery) -> OpsLatency:
        """`GET /latency`."""
        await self._demand(caller, Action.READ, query.name)
        self._demand_trends()
        since, until = self._range(query, WINDOWS[query.window])
        usual = STEPS[query.window]
        points = await self._points(query.name, since, until, usual if query.from_ is None else None)
        return OpsLatency(
            server_time=iso(self._now()),
            **{"from": iso(points[0].at if points else since)},
            to=iso(until),
            step_ms=milliseconds(points[0].step if points else usual),
            times=[iso(point.at) for point in points],
            wait=heat([point.waited for point in points]),
            run=heat([point.ran for point in points]),
        )

    def _range(self, query: OpsTrendsQuery | OpsLatencyQuery, usual: timedelta) -> tuple[datetime, datetime]:
        until = query.to or self._now()
        # The first hours of the year 1 have none before them.
        since = query.from_ or max(until, _FIRST + usual) - usual
        if since >= until:
            raise BadRequestError("from must be before to", errors=[("from", "must be before to")])
        return since, until

    def _demand_trends(self) -> None:
        if not self.monque.companions["trends"]:
            raise NotOfferedError("No numbers over time are kept here: see Options.trends.")

    async def _points_of(self, name: str | None, window: Window) -> list[TrendPoint]:
        now = self._now()
        return await self._points(name, now - WINDOWS[window], now, STEPS[window])

    async def _points(
        self, name: str | None, since: datetime, until: datetime, step: timedelta | None
    ) -> list[TrendPoint]:
        since, until = since.replace(microsecond=0), _up_to_second(until)
        return await self._shared(
            ("trends", name, since, until, step),
            lambda: self.monque.trends(
                name=name, since=since, until=until, step=step, max_time=self._max_time
            ),
        )

    async def _series_of(self, name: str | None, window: Window) -> OpsSeries:
        now = self._now()
        return await self._series(name, now - WINDOWS[window], now, STEPS[window])

    async def _series(
        self, name: str | None, since: datetime, until: datetime, step: timedelta | None
    ) -> OpsSeries:
        points = await self._points(name, since, until, step)
        step = points[0].step if points else step or timedelta(minutes=1)
        marks = [mark for mark in await self._marks() if iso(since) <= mark.at <= iso(until)]
        return OpsSeries(
            **{"from": iso(points[0].at if points else since)},
            to=iso(until),
            step_ms=milliseconds(step),
            columns=list(COLUMNS),
            rows=[row_of(point) for point in points],
            marks=marks,
            partial=bool(points) and points[-1].at + step > self._now(),
        )


def _up_to_second(until: datetime) -> datetime:
    """The end of the second in which a range ends, so that those who ask within it share a read.

    Cut off instead, it would lose the newest minute for the first second of that minute.
    """
    until = min(until, _LAST)
    return until.replace(microsecond=0) + timedelta(seconds=until.microsecond > 0)
