"""An operator gives a schedule other times or another payload; all else stays."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from monque import ConfigurationError, InvalidCronError, Job, JobNotFoundError, Monque, PayloadError
from support.aliases import Collection
from support.jobs import only


async def test_another_cron_moves_the_next_time_and_keeps_the_settings(
    monque: Monque, collection: Collection
) -> None:
    await monque.schedule(
        "0 9 * * *", "report", {"a": 1}, grace=timedelta(hours=1), max_attempts=3, priority=5, limit=10
    )

    edited = await monque.edit_schedule("report", cron="30 10 * * *")

    stored = await only(collection)
    assert edited.cron == stored["repeatInterval"] == "30 10 * * *"
    assert edited.next_run_at is not None
    assert (edited.next_run_at.hour, edited.next_run_at.minute) == (10, 30)
    assert (edited.grace, edited.limit, edited.data) == (timedelta(hours=1), 10, {"a": 1})
    assert (stored["policy"]["maxAttempts"], stored["priority"]) == (3, 5)


async def test_zone_and_payload_are_changed_alone(monque: Monque) -> None:
    before = await monque.schedule("0 9 1 1 *", "report", {"a": 1})

    zone = await monque.edit_schedule("report", timezone="Asia/Tokyo")
    data = await monque.edit_schedule("report", data={"a": 2})
    nothing = await monque.edit_schedule("report", data=None)

    assert (zone.cron, zone.timezone, zone.data) == ("0 9 1 1 *", "Asia/Tokyo", {"a": 1})
    assert zone.next_run_at is not None
    assert zone.next_run_at != before.next_run_at
    assert (data.next_run_at, data.data) == (zone.next_run_at, {"a": 2})
    assert nothing.data is None


async def test_an_interval_and_an_expression_take_each_others_place(monque: Monque) -> None:
    await monque.schedule(timedelta(minutes=5), "poll", grace=timedelta(minutes=1))

    cron = await monque.edit_schedule("poll", cron="@hourly")
    every = await monque.edit_schedule("poll", cron=timedelta(seconds=30))

    assert (cron.every, cron.cron, cron.grace) == (None, "@hourly", timedelta(minutes=1))
    assert (every.every, every.cron, every.grace) == (timedelta(seconds=30), None, timedelta(minutes=1))


async def test_a_paused_schedule_stays_so(monque: Monque) -> None:
    await monque.schedule("0 9 * * *", "report")
    await monque.pause_schedule("report")

    edited = await monque.edit_schedule("report", cron="0 8 * * *")

    assert (edited.state, edited.next_run_at) == ("paused", None)
    resumed = await monque.resume_schedule("report")
    assert resumed.next_run_at is not None
    assert resumed.next_run_at.hour == 8


async def test_what_cannot_be_is_refused_and_changes_nothing(monque: Monque, collection: Collection) -> None:
    @monque.worker("typed")
    async def typed(job: Job[int]) -> None: ...

    await monque.schedule("0 9 * * *", "typed", 1)
    before = await only(collection)

    wrong: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"cron": "not a cron"}, InvalidCronError),
        ({"cron": timedelta(milliseconds=1)}, ConfigurationError),
        ({"timezone": "Mars/Olympus"}, ConfigurationError),
        ({"data": "text"}, PayloadError),
    ]
    for given, error in wrong:
        with pytest.raises(error):
            await monque.edit_schedule("typed", **given)
    with pytest.raises(JobNotFoundError):
        await monque.edit_schedule("typed", "other-key", cron="@daily")
    assert await only(collection) == before


async def test_an_edit_meets_another_and_is_made_again(monque: Monque) -> None:
    """Two operators change it at the same time: both changes are there afterwards."""
    await monque.schedule("0 9 * * *", "report", {"a": 1})

    await asyncio.gather(
        monque.edit_schedule("report", cron="0 8 * * *"), monque.edit_schedule("report", data={"a": 2})
    )

    schedule = await monque.get_schedule("report")
    assert (schedule.cron, schedule.data) == ("0 8 * * *", {"a": 2})
