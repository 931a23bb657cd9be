"""What daylight saving does to a schedule: compared with the zone itself, and with what the cron really does.

A sample of zones is tried; all of them with MONQUE_ALL_ZONES=1, in about a minute.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest
from cronsim import CronSim

from monque import ConfigurationError, DstEdge, InvalidCronError, dst_edges
from monque._time.cron import Cron
from monque._time.plan import Plan

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
END = datetime(2034, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)

# Changes of half an hour, at midnight, around Ramadan, by law of this year, of two hours; and none at all.
SAMPLE = [
    *("Europe/Berlin", "Australia/Lord_Howe", "Africa/Casablanca", "Africa/Cairo", "Asia/Gaza"),
    *("Antarctica/Troll", "America/Nuuk", "UTC", "America/Havana", "Asia/Almaty"),
]
ZONES = sorted(available_timezones()) if os.environ.get("MONQUE_ALL_ZONES") else SAMPLE
CRONS = ["30 2 * * *", "15 0,1,23 * * *", "*/20 2 * * SUN"]


def walls(text: str) -> Iterator[datetime]:
    """Every wall-clock time of the expression in these years, as if no clock was ever changed."""
    first, last = (moment.replace(tzinfo=None) for moment in (BEGIN - 2 * DAY, END + 2 * DAY))
    return takewhile(lambda wall: wall < last, CronSim(text, first))


WALLS = {text: list(walls(text)) for text in CRONS}


def expected(text: str, zone: ZoneInfo) -> list[tuple[str, str]]:
    """Those that the zone skips or repeats."""
    found = []
    for wall in WALLS[text]:
        first, second = (wall.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
        if first.utcoffset() == second.utcoffset():
            continue
        is_shown = first.astimezone(UTC).astimezone(zone).replace(tzinfo=None, fold=0) == wall
        found.append(("repeated" if is_shown else "skipped", wall.isoformat(timespec="minutes")))
    return found


@pytest.mark.parametrize("name", ZONES)
def test_the_edges_are_those_of_the_zone_and_runs_those_of_the_cron(name: str) -> None:
    zone = ZoneInfo(name)
    for text in CRONS:
        edges = dst_edges(text, name, after=BEGIN, until=END)
        assert [(edge.kind, edge.local) for edge in edges] == expected(text, zone)
        for edge in edges:
            check_runs(Cron.parse(text, name), edge, zone)


def check_runs(cron: Cron, edge: DstEdge, zone: ZoneInfo) -> None:
    around = takewhile(lambda run: run < edge.at + DAY, Plan(cron=cron).runs_after(edge.at - DAY))
    runs = list(around)
    shown = tuple(
        run
        for run in runs
        if run.astimezone(zone).replace(tzinfo=None).isoformat(timespec="minutes") == edge.local
    )
    if edge.kind == "repeated":
        assert edge.runs == shown
        # In Python no time that comes twice equals one of another zone.
        assert edge.at.astimezone(UTC) == edge.runs_at
    else:
        assert shown == ()
        assert edge.runs == (() if cron.runs_when_shown else (edge.at.astimezone(UTC),))
        assert set(edge.runs) <= set(runs)
    assert edge.at.tzinfo == zone


@pytest.mark.parametrize("text", ["* * * * *", "0 * * * *", "@hourly", "30 */2 * * *"])
def test_a_schedule_of_every_hour_has_no_edges(text: str) -> None:
    assert dst_edges(text, "Europe/Berlin", after=BEGIN, until=END) == []


def test_a_year_of_every_minute_of_an_hour_is_cheap() -> None:
    began = time.process_time()
    found = dst_edges("* 2 * * *", "Europe/Berlin", after=BEGIN)

    assert len(found) == 120  # in March and in October
    assert time.process_time() - began < 2


def test_the_words_of_the_documentation_hold() -> None:
    spring, autumn = dst_edges("30 2 * * *", "Europe/Berlin", after=datetime(2027, 1, 1, tzinfo=UTC))[:2]

    assert (spring.local, spring.kind) == ("2027-03-28T02:30", "skipped")
    assert spring.runs_at == datetime(2027, 3, 28, 1, tzinfo=UTC)
    assert spring.at.isoformat() == "2027-03-28T03:00:00+02:00"
    assert (autumn.local, autumn.kind) == ("2027-10-31T02:30", "repeated")
    assert autumn.runs == (datetime(2027, 10, 31, 0, 30, tzinfo=UTC),)
    shown = dst_edges("*/30 2 * * *", "Europe/Berlin", after=spring.at - DAY)
    assert [len(edge.runs) for edge in shown] == [0, 0, 2, 2, 0, 0]


def test_an_edge_belongs_to_the_time_in_which_it_is() -> None:
    (edge,) = dst_edges("30 2 31 10 *", "Europe/Berlin", after=datetime(2027, 10, 1, tzinfo=UTC))
    second = timedelta(seconds=1)

    def between(after: datetime, until: datetime) -> list[DstEdge]:
        return dst_edges("30 2 31 10 *", "Europe/Berlin", after=after, until=until)

    assert between(edge.at - second, edge.at) == [edge]
    assert between(edge.at, edge.at + DAY) == []
    assert between(edge.at - DAY, edge.at - second) == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"cron": "61 * * * *"}, "is not a valid minute"),
        ({"timezone": "Mars/Olympus"}, "unknown time zone"),
        ({"after": datetime(2027, 1, 1)}, "after must be an aware datetime"),  # noqa: DTZ001 - that is the point
        ({"until": "soon"}, "until must be an aware datetime"),
        ({"until": BEGIN - DAY}, "until must be between after"),
        ({"until": BEGIN + 8000 * DAY}, "20 years later"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_wrong_arguments_are_refused(wrong: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"cron": "30 2 * * *", "timezone": "UTC", "after": BEGIN, "until": END, **wrong}
    with pytest.raises(ConfigurationError, match=message) as error:
        dst_edges(**given)
    assert isinstance(error.value, InvalidCronError) == ("cron" in wrong)
