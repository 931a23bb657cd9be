"""Numbers over time: their retention, those of one step, and histograms of runs and waits."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from monque._values.errors import ConfigurationError
from monque._values.rules import check_duration

# Tallies that cannot be written are dropped after ten minutes; a flush must come well before that.
_LONGEST_INTERVAL = timedelta(minutes=5)

# Hours are added up from their minutes, some minutes after they have ended.
_FEWEST_MINUTES = timedelta(hours=2)

# Five buckets a decade, from 1 ms to a day. Twice as many make a quantile no more useful and documents twice
# as large; with half as many, 1 s and 2.4 s look the same.
_BUCKETS_A_DECADE = 5
_LAST_BUCKET = 40
BOUNDS = [10 ** (bucket / _BUCKETS_A_DECADE) for bucket in range(_LAST_BUCKET + 1)]
"""The ends of the buckets, in milliseconds. The last bucket also holds all that is longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trends:
    """The resolution and retention of the numbers of `Monque.trends`.

    Attributes:
        interval: How often an instance writes what has happened since, if anything has. A process that is
            killed loses at most that.
        minutes: How long the numbers of each minute are kept, at least two hours.
        hours: How long the numbers of each hour are kept.
    """

    interval: timedelta = timedelta(seconds=10)
    minutes: timedelta = timedelta(hours=48)
    hours: timedelta = timedelta(days=90)

    def __post_init__(self) -> None:
        for name in ("interval", "minutes", "hours"):
            check_duration(f"trends.{name}", getattr(self, name))
        if self.interval > _LONGEST_INTERVAL:
            raise ConfigurationError(f"trends.interval must be at most 5 minutes, got {self.interval}")
        if self.minutes < _FEWEST_MINUTES:
            raise ConfigurationError(
                "trends.minutes must be at least 2 hours, because hours are added up from their minutes, "
                f"got {self.minutes}"
            )
        if self.hours < self.minutes:
            raise ConfigurationError(
                f"trends.hours must be at least trends.minutes ({self.minutes}), got {self.hours}"
            )


@dataclass(frozen=True, slots=True)
class Histogram:
    """The number of durations in each bucket; buckets without any are left out.

    Bucket 0 is below 1 ms. Of the others, five share a decade: bucket 1 is 1 to 1.58 ms, bucket 6 is 10 to
    15.8 ms, and bucket 40 is everything from 17.5 hours on.

    Examples:
        >>> waited = Histogram({6: 90, 11: 10})
        >>> waited.count
        100
        >>> waited.quantile(0.95)
        datetime.timedelta(microseconds=129245)
    """

    counts: Mapping[int, int] = field(default_factory=dict)

    @staticmethod
    def bucket_of(milliseconds: float) -> int:
        """The bucket of a duration."""
        return min(bisect_right(BOUNDS, milliseconds), _LAST_BUCKET)

    @staticmethod
    def bounds(bucket: int) -> tuple[timedelta, timedelta]:
        """Return the begin and the end of a bucket; the last one has no true end."""
        if not 0 <= bucket <= _LAST_BUCKET:
            raise ConfigurationError(f"a bucket is a number from 0 to {_LAST_BUCKET}, got {bucket!r}")
        begin = BOUNDS[bucket - 1] if bucket else 0.0
        return timedelta(milliseconds=begin), timedelta(milliseconds=BOUNDS[bucket])

    @property
    def count(self) -> int:
        """The number of durations."""
        return sum(self.counts.values())

    def quantile(self, share: float) -> timedelta | None:
        """The duration that this share of all did not exceed, about; None if there are none.

        Inside a bucket, durations are taken as evenly spread.

        Raises:
            ConfigurationError: The share is not between 0 and 1.
        """
        if not 0 <= share <= 1:
            raise ConfigurationError(f"a quantile is a share from 0 to 1, such as 0.95, got {share!r}")
        below, wanted = 0, share * self.count
        for bucket, count in sorted(self.counts.items()):
            if count and below + count >= wanted:
                begin, end = self.bounds(bucket)
                return begin + (end - begin) * ((wanted - below) / count)
            below += count
        return None

    def __add__(self, other: Histogram) -> Histogram:
        if not isinstance(other, Histogram):
            return NotImplemented
        buckets = sorted(self.counts.keys() | other.counts.keys())
        return Histogram({each: self.counts.get(each, 0) + other.counts.get(each, 0) for each in buckets})

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(sorted(self.counts.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendPoint:
    """The numbers of one step of time.

    Attributes:
        at: When the step begins.
        step: How long it is.
        name: The job name; None for all names together.
        completed: Runs that succeeded, also those of schedules.
        retried: Runs that failed, and whose jobs run again.
        failed: Runs that failed for good, and jobs that recovery gave up.
        cancelled: Runs that ended cancelled, and jobs that had expired when a worker came to them.
        snoozed: Runs whose handlers put their job off.
        ran_total: How long all of these runs took together.
        waited_total: How long their jobs waited together, from their time to the start of the handler.
        ran: How long single runs took.
        waited: How long single jobs waited.
        due: The most jobs that waited at one moment though their time had come; None if nobody counted.
        later: The most jobs with a time in the future, as above.
        processing: The most jobs that ran at one moment, as above.
        oldest_due: The longest that a job had been due, as above.
    """

    at: datetime
    step: timedelta
    name: str | None = None
    completed: int = 0
    retried: int = 0
    failed: int = 0
    cancelled: int = 0
    snoozed: int = 0
    ran_total: timedelta = timedelta(0)
    waited_total: timedelta = timedelta(0)
    ran: Histogram = Histogram()
    waited: Histogram = Histogram()
    due: int | None = None
    later: int | None = None
    processing: int | None = None
    oldest_due: timedelta | None = None

    @property
    def ended(self) -> int:
        """All runs that ended in this step, however they did."""
        return self.completed + self.retried + self.failed + self.cancelled + self.snoozed
