"""The operator's view of all instances together: who they are, what waits, and what happened over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType

from pymongo.errors import OperationFailure

from monque._api.life import Opening
from monque._ops import bulk, counts
from monque._ops import trends as trend_reads
from monque._ops.register import to_instance
from monque._ops.trends import MINUTE, Span, begin_of
from monque._store import filters
from monque._store.indexes import USES
from monque._store.store import Store
from monque._values.errors import ConfigurationError, driver_errors
from monque._values.options import Options
from monque._values.records import Instance
from monque._values.rules import check_duration, check_flag, check_time
from monque._values.trends import TrendPoint
from monque._values.views import JobCounts, JobFilter, QueueDepth, check_filter, check_range
from monque._workers.workers import Workers

# A point for each minute of two days. Twice as many take the server and a browser a noticeable time.
_MOST_STEPS = 3_000

# Without a step, there are at most so many points: about what a chart can show.
_STEPS_SHOWN = 200
_STEPS = tuple(timedelta(minutes=each) for each in (1, 5, 15, 60, 6 * 60, 24 * 60))

_NO_SUCH_INDEX = 2
_FAILED = USES["failures"].index_name

# Counting more takes longer than anybody waits.
_MOST_COUNTED = 10_000_000


class Insight:
    """Methods that look at all instances; `Monque` has them all."""

    _opening: Opening
    _options: Options
    _workers: Workers

    @property
    def companions(self) -> Mapping[str, bool]:
        """Which of the small collections beside the jobs are written: `trends`, `register` and `audit`.

        False if the options say so, or if the server has refused a write: for lack of a right or of space.
        """
        companions = self._opening.anywhere().context.companions
        return MappingProxyType({name: each.is_on for name, each in companions._asdict().items()})

    async def instances(self, *, max_time: timedelta | None = None) -> list[Instance]:
        """The instances that process jobs, or did so within the last 24 hours; those alive come first.

        Instances with `Options(register=False)`, older versions and the TypeScript implementation are not
        among them.

        Args:
            max_time: The longest that the read may take.

        Raises:
            AggregationTimeoutError: It took longer.

        Examples:
            >>> for instance in await monque.instances():
            ...     print(instance.id, instance.host, instance.alive, instance.busy)
        """
        store, max_time = self._opening.here().store, _check_max_time(max_time)
        collection = self._opening.here().context.companions.register.collection
        with driver_errors("read the register of instances"):
            found = await bulk.aggregate(collection, [{"$sort": {"_id": 1}}], max_time=max_time)
        now, tolerance = store.clock.now(), self._options.heartbeat_tolerance
        seen = [to_instance(document, now, tolerance=tolerance) for document in found]
        return sorted(seen, key=lambda instance: not instance.alive)

    async def trends(
        self,
        *,
        name: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        step: timedelta | None = None,
        by_name: bool = False,
        max_time: timedelta | None = None,
    ) -> list[TrendPoint]:
        """What happened over time, the earliest step first; the last one may still be going on.

        It knows the runs of all instances that write trends, up to a few seconds ago. Minutes are kept for 48
        hours and hours for 90 days, unless `Options.trends` says otherwise.

        Args:
            name: Of this job name; None for all names together.
            since: From the step on in which this lies; by default an hour before *until*.
            until: Up to this time; by default now.
            step: How long a step is, in whole minutes: steps of whole hours reach further back. By default
                as long that there are at most 200.
            by_name: One point for each step *and* name in which something happened, instead of one for each
                step.
            max_time: The longest that the read may take.

        Raises:
            ConfigurationError: The times make no sense, or there would be more than 3,000 steps.
            AggregationTimeoutError: It took longer than *max_time*.

        Examples:
            >>> for point in await monque.trends(name="send-email", step=timedelta(minutes=5)):
            ...     print(point.at, point.completed, point.failed, point.waited.quantile(0.95))
        """
        store, max_time = self._opening.here().store, _check_max_time(max_time)
        JobFilter(name=name)  # refuses what cannot be a name
        span = _span(since, until, step, store.clock.now())
        by_name = check_flag("by_name", by_name)
        collection = self._opening.here().context.companions.trends.collection
        with driver_errors("read the trends"):
            return await trend_reads.read(collection, span, name=name, by_name=by_name, max_time=max_time)

    async def queue_depths(
        self, *, failures: bool = False, max_time: timedelta | None = None
    ) -> list[QueueDepth]:
        """How many jobs of each name wait or run, on all instances together, sorted by name.

        It reads one index entry for each job that waits or runs, and no finished one. Names that are served
        here are included without jobs, too.

        Args:
            failures: Also count the failed and the cancelled jobs of each name. That takes the index of the
                use `failures`; without it, these numbers stay None.
            max_time: The longest that each read may take.

        Raises:
            AggregationTimeoutError: It took longer than *max_time*, or 30 seconds.
        """
        store, max_time = self._opening.here().store, _check_max_time(max_time)
        check_flag("failures", failures)
        now = store.clock.now()
        with driver_errors("count the waiting jobs"):
            groups = await bulk.aggregate(store.collection, counts.depths(now), max_time=max_time)
            settings = await store.control.read_if_allowed()
            served = [worker.name for worker in self._workers if self._workers.serves(worker.name)]
            depths = counts.depths_from(groups, besides=served, now=now)
            if failures:
                depths = await _with_failures(store, depths, max_time)
        return [replace(depth, paused=settings.pause_of(depth.name, now) is not None) for depth in depths]

    async def job_counts(
        self,
        filter: JobFilter = JobFilter(),  # noqa: A002 - as in other methods
        *,
        limit: int = 100_000,
        max_time: timedelta | None = None,
    ) -> JobCounts:
        """How many jobs match, by state and by name, in one read.

        Args:
            filter: Which jobs.
            limit: Where to stop counting, up to 10,000,000.
            max_time: The longest that the read may take.

        Raises:
            AggregationTimeoutError: It took longer than *max_time*, or 30 seconds.

        Examples:
            >>> counts = await monque.job_counts(JobFilter(created_before=monday))
            >>> counts.by_status.get("failed", 0)
        """
        store, max_time = self._opening.here().store, _check_max_time(max_time)
        query = filters.matching(check_filter(filter))
        check_range("limit", limit, 1, _MOST_COUNTED)
        with driver_errors("count the jobs"):
            groups = await bulk.aggregate(
                store.collection, counts.counts(query, limit + 1), max_time=max_time
            )
        return counts.counts_from(groups, limit)

    async def estimated_count(self, *, max_time: timedelta | None = None) -> int:
        """About how many jobs there are in all states together, from what the server knows without counting.

        Raises:
            AggregationTimeoutError: It took longer than *max_time*.
        """
        store, max_time = self._opening.here().store, _check_max_time(max_time)
        with driver_errors("estimate the number of jobs"):
            return await bulk.estimate(store.collection, max_time=max_time)


async def _with_failures(
    store: Store, depths: list[QueueDepth], max_time: timedelta | None
) -> list[QueueDepth]:
    try:
        groups = await bulk.aggregate(store.collection, counts.badly_ended(), max_time=max_time, hint=_FAILED)
    except OperationFailure as error:
        if error.code != _NO_SUCH_INDEX:
            raise
        return depths
    return counts.with_failures(depths, groups)


def _check_max_time(max_time: object) -> timedelta | None:
    return None if max_time is None else check_duration("max_time", max_time)


def _span(since: object, until: object, step: object, now: datetime) -> Span:
    """The steps that are asked for."""
    end = now if until is None else _check_counted("until", until)
    begin = end - timedelta(hours=1) if since is None else _check_counted("since", since)
    if begin >= end:
        raise ConfigurationError(f"since must be before until, got {begin} and {end}")
    length = _shortest_step(end - begin) if step is None else check_duration("step", step)
    if length % MINUTE:
        raise ConfigurationError(f"step must be in whole minutes, got {length}")
    begin = begin_of(length, begin)
    if (end - begin) / length > _MOST_STEPS:
        raise ConfigurationError(
            f"from {begin} to {end} there would be more than {_MOST_STEPS:,} steps of {length}; "
            "ask for longer steps or a shorter time"
        )
    return Span(begin, end, length)


def _check_counted(label: str, given: object) -> datetime:
    """Return a time from which steps can be counted in either direction."""
    moment = check_time(label, given)
    if not 1970 <= moment.year <= 9000:
        raise ConfigurationError(f"{label} must lie in the years 1970 to 9000, got {moment}")
    return moment


def _shortest_step(duration: timedelta) -> timedelta:
    return next((step for step in _STEPS if duration / step <= _STEPS_SHOWN), _STEPS[-1])
