"""The times of a schedule: of a cron expression or an interval, within bounds, with a jitter.

An interval is counted from a fixed moment, never from the end of a run, so it does not drift. The jitter of
a time is a hash of that time and of the schedule: whoever computes it, in whatever process, gets the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from math import ceil

from monque._time.cron import Cron
from monque._values.rules import check_count, check_time

_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_HOURS = 24
_HOUR_MINUTES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The times of one schedule.

    Attributes:
        cron: The expression and its zone. It does not count if there is an interval.
        every: The interval.
        anchor: What an interval is counted from, unless there is a start.
        start: The first possible time; an interval begins with it.
        end: The last possible time.
        jitter: Each run is later than its time by at most this.
        seed: What tells this schedule from others, for the jitter.
    """

    cron: Cron
    every: timedelta | None = None
    anchor: datetime | None = None
    start: datetime | None = None
    end: datetime | None = None
    jitter: timedelta | None = None
    seed: str = ""

    def next_after(self, moment: datetime) -> datetime | None:
        """The first run strictly after *moment*; None if no more time comes.

        With a jitter it is the earliest of its times whose run is still to come. So everyone who asks
        between two runs gets the same answer.
        """
        if self.jitter is None:
            return self._time_after(moment)
        time = self._time_after(moment - self.jitter)
        while time is not None and (run_at := time + self._delay(time)) <= moment:
            time = self._time_after(time)
        return None if time is None else run_at

    def runs_after(self, moment: datetime) -> Iterator[datetime]:
        """All runs after *moment*, one after the other."""
        while (following := self.next_after(moment)) is not None:
            yield (moment := following)

    def time_of(self, run_at: datetime) -> datetime:
        """The time without jitter that a run at *run_at* is for; *run_at* itself if it is for none."""
        if self.jitter is None:
            return run_at
        time = self._time_after(run_at - self.jitter - _MILLISECOND)
        while time is not None and time <= run_at:
            if time + self._delay(time) == run_at:
                return time
            time = self._time_after(time)
        return run_at

    def _time_after(self, moment: datetime) -> datetime | None:
        """The first time strictly after *moment*, without jitter."""
        if self.start is not None:
            moment = max(moment, self.start - _MILLISECOND)
        try:
            time = self.cron.next_after(moment) if self.every is None else self._multiple_after(moment)
        except (OverflowError, StopIteration):  # beyond the year 9999
            return None
        return None if self.end is not None and time > self.end else time

    def _multiple_after(self, moment: datetime) -> datetime:
        assert self.every is not None  # noqa: S101 - checked by the caller
        base = self.start or self.anchor or _EPOCH
        count = (moment - base) // self.every + 1
        # A start is the first time itself; a declaration is followed by the first time.
        return base + max(count, 0 if self.start is not None else 1) * self.every

    def _delay(self, time: datetime) -> timedelta:
        assert self.jitter is not None  # noqa: S101 - checked by the callers
        at = (time - _EPOCH) // _MILLISECOND
        digest = hashlib.blake2b(f"{self.seed}\0{at}".encode("utf-8", "surrogatepass"), digest_size=8)
        return int.from_bytes(digest.digest(), "big") % (self.jitter // _MILLISECOND + 1) * _MILLISECOND


def nearest_cron(every: timedelta) -> str:
    """The cron text that stands in for an interval: as frequent, or the next less frequent one.

    It is at most once a minute, and at least once a day.
    Other implementations know no intervals. With this text, one that runs the job does not end the schedule.
    """
    minutes = ceil(every / timedelta(minutes=1))
    if every < timedelta(minutes=1):
        return "* * * * *"
    if minutes < _HOUR_MINUTES:
        return f"*/{_next_divisor(minutes, _HOUR_MINUTES)} * * * *" if minutes <= 30 else "0 */1 * * *"
    hours = ceil(every / timedelta(hours=1))
    return f"0 */{_next_divisor(hours, _DAY_HOURS)} * * *" if hours <= 12 else "@daily"


def _next_divisor(number: int, whole: int) -> int:
    """The smallest divisor of *whole* that is not less than *number*."""
    return next(each for each in range(number, whole + 1) if whole % each == 0)


def next_runs(
    cron: str, timezone: str = "UTC", *, after: datetime | None = None, count: int = 5
) -> list[datetime]:
    """The next times of a cron expression, in UTC. It asks no database.

    Args:
        cron: Five fields, or a name such as @daily or @hourly.
        timezone: The IANA zone that the fields are meant in.
        after: Where to begin, as an aware datetime; default now.
        count: How many, at most 10,000.

    Raises:
        InvalidCronError: The expression cannot be used.
        ConfigurationError: Another argument is wrong; the message names it.

    Examples:
        >>> next_runs("0 9 * * MON-FRI", "Europe/Berlin", after=datetime(2026, 5, 1, tzinfo=UTC), count=1)
        [datetime.datetime(2026, 5, 1, 7, 0, tzinfo=datetime.timezone.utc)]
    """
    begin = datetime.now(UTC) if after is None else check_time("after", after)
    plan = Plan(cron=Cron.parse(cron, timezone))
    return list(islice(plan.runs_after(begin), check_count("count", count, limit=10_000)))
