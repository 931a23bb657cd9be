"""Times with daylight saving are written as the wall clock shows them, with the UTC offset."""

from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from monque._time.cron import Cron
from monque._values.errors import ConfigurationError, InvalidCronError

NEW_YORK = "America/New_York"  # 2026: 02:00 -> 03:00 on 8 March, 02:00 -> 01:00 on 1 November
BERLIN = "Europe/Berlin"  # 2026: 02:00 -> 03:00 on 29 March, 03:00 -> 02:00 on 25 October
LORD_HOWE = "Australia/Lord_Howe"  # 2026: 02:00 -> 01:30 on 5 April, 02:00 -> 02:30 on 4 October
SANTIAGO = "America/Santiago"  # 2026: 24:00 -> 23:00 on 4 April, 00:00 -> 01:00 on 6 September
TROLL = "Antarctica/Troll"  # two hours at once: 01:00 -> 03:00 on 29 March, 03:00 -> 01:00 on 25 October


def runs(expression, zone, after, count):
    """The next *count* runs as the clock on the wall shows them."""
    cron = Cron.parse(expression, zone)
    moment = datetime.fromisoformat(after)
    shown = []
    for _ in range(count):
        moment = cron.next_after(moment)
        assert moment.tzinfo is UTC
        shown.append(moment.astimezone(ZoneInfo(zone)).isoformat(" ", "minutes"))
    return shown


# Expressions


@pytest.mark.parametrize(
    ("expression", "first"),
    [
        ("* * * * *", "2026-01-01 00:01+00:00"),
        ("*/15 * * * *", "2026-01-01 00:15+00:00"),
        ("5,10-12 * * * *", "2026-01-01 00:05+00:00"),
        ("7/20 * * * *", "2026-01-01 00:07+00:00"),
        ("30 9 * * MON-FRI", "2026-01-01 09:30+00:00"),
        ("0 0 * * 7", "2026-01-04 00:00+00:00"),
        ("0 0 * * 0", "2026-01-04 00:00+00:00"),
        ("0 0 * * sun", "2026-01-04 00:00+00:00"),
        ("0 0 * feb-Mar *", "2026-02-01 00:00+00:00"),
        ("0 0 L * *", "2026-01-31 00:00+00:00"),
        ("0 0 LW * *", "2026-01-30 00:00+00:00"),
        ("0 0 * * 5L", "2026-01-30 00:00+00:00"),
        ("0 0 * * MON#2", "2026-01-12 00:00+00:00"),
        ("0 0 29 2 *", "2028-02-29 00:00+00:00"),
        ("0 0 13 * FRI", "2026-01-02 00:00+00:00"),
        ("*/60 * * * *", "2026-01-01 01:00+00:00"),
        ("0 */24 * * *", "2026-01-02 00:00+00:00"),
        ("@yearly", "2027-01-01 00:00+00:00"),
        ("@annually", "2027-01-01 00:00+00:00"),
        ("@monthly", "2026-02-01 00:00+00:00"),
        ("@weekly", "2026-01-04 00:00+00:00"),
        ("@daily", "2026-01-02 00:00+00:00"),
        ("@midnight", "2026-01-02 00:00+00:00"),
        ("@hourly", "2026-01-01 01:00+00:00"),
    ],
)
def test_five_fields_and_names_give_the_next_time(expression, first):
    assert runs(expression, "UTC", "2026-01-01T00:00Z", 1) == [first]


@pytest.mark.parametrize(
    ("expression", "same"),
    [
        ("5-5/1 * * * *", "5 * * * *"),
        ("5-05/1 * * * *", "5 * * * *"),
        ("5-5/1,20-30/5 * * * *", "5,20-30/5 * * * *"),
        ("0 7-7/1 * * *", "0 7 * * *"),
        ("0 0 5-5/1 * *", "0 0 5 * *"),
        ("0 0 1 FEB-2/1 *", "0 0 1 2 *"),
        ("0 0 * * MON-MON/1", "0 0 * * MON"),
        ("0 0 * * mon-1/3", "0 0 * * MON"),
        ("0 0 * * 7-7/1", "0 0 * * SUN"),
        ("0 0 * * MON-TUE/1", "0 0 * * 1,2"),
        ("5/15 * * * *", "5,20,35,50 * * * *"),
    ],
)
def test_a_range_of_one_value_with_a_step_is_that_value(expression, same):
    """cronsim reads `5-5/1` as `5/1`, every minute from 5 on; cron and TypeScript's parser do not."""
    assert runs(expression, "UTC", "2026-01-01T00:00Z", 5) == runs(same, "UTC", "2026-01-01T00:00Z", 5)
    assert Cron.parse(expression).expression == expression


def test_the_expression_is_kept_as_given_but_for_blanks_around_it():
    assert Cron.parse("\t0  9 * jan-DEC mon \n").expression == "0  9 * jan-DEC mon"


@pytest.mark.parametrize(("given", "stored"), [("@Hourly", "@hourly"), (" @MIDNIGHT ", "@daily")])
def test_names_are_stored_as_typescript_knows_them(given, stored):
    assert Cron.parse(given) == Cron(stored, "UTC")


def test_parsing_the_same_again_costs_nothing():
    assert Cron.parse("1 2 3 4 *", BERLIN) is Cron.parse(" 1 2 3 4 * ", BERLIN)


def test_a_cron_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        Cron.parse("* * * * *").expression = "0 0 31 2 *"


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("60 * * * *", ["minute", "'60'", "0-59"]),
        ("a * * * *", ["minute", "'a'", "0-59"]),
        ("? * * * *", ["minute", "'?'"]),
        ("*/0 * * * *", ["minute", "'*/0'"]),
        ("5-1 * * * *", ["minute", "'5-1'"]),
        ("1,,2 * * * *", ["minute", "''"]),
        ("-1 * * * *", ["minute", "'-1'"]),
        ("1.5 * * * *", ["minute", "'1.5'"]),
        ("*/61 * * * *", ["minute", "'*/61'", "wider", "0-59"]),
        ("0-59/61 * * * *", ["minute", "'0-59/61'", "wider"]),
        ("10-20/30 * * * *", ["minute", "'10-20/30'", "wider"]),
        ("5/61 * * * *", ["minute", "'5/61'", "wider"]),
        ("0 24 * * *", ["hour", "'24'", "0-23"]),
        ("0 9,25 * * *", ["hour", "'25'", "0-23"]),
        ("0 */25 * * *", ["hour", "'*/25'", "wider"]),
        ("0 0 0 * *", ["day of month", "'0'", "1-31"]),
        ("0 0 32 * *", ["day of month", "'32'", "1-31"]),
        ("0 0 ? * MON", ["day of month", "'?'"]),
        ("0 0 * 13 *", ["month", "'13'", "1-12", "JAN-DEC"]),
        ("0 0 * FOO *", ["month", "'FOO'"]),
        ("0 0 * * 8", ["day of week", "'8'", "0-7", "SUN-SAT"]),
        ("0 0 * * ?", ["day of week", "'?'"]),
        ("0 0 * * MON#6", ["day of week", "'MON#6'"]),
        ("0 0 * * */8", ["day of week", "'*/8'", "wider"]),
        ("0 0 * * frı", ["day of week"]),
        ("0 0 31 2 *", ["never", "'31'", "'2'"]),
        ("0 0 30 2 *", ["never"]),
        ("0 0 31 4,6,9,11 *", ["never"]),
        ("0 0 */29 2 MON#5", ["never"]),
        ("", ["0 fields", "5"]),
        ("   ", ["0 fields"]),
        ("* * *", ["3 fields", "minute, hour, day of month, month, day of week"]),
        ("0 0 0 * * *", ["6 fields", "seconds"]),
        ("* * * * * * *", ["7 fields"]),
        ("@reboot", ["'@reboot'", "@yearly", "@hourly"]),
        ("@every 5m", ["'@every 5m'"]),
        ("9" * 5000 + " * * * *", ["minute"]),
    ],
)
def test_a_wrong_expression_is_refused_with_field_reason_and_example(expression, words):
    with pytest.raises(InvalidCronError) as refusal:
        Cron.parse(expression)

    message = str(refusal.value)
    assert [word for word in [*words, "'30 9 * * MON-FRI'"] if word not in message] == []
    assert refusal.value.expression == expression.strip()


@pytest.mark.parametrize("value", [None, 5, 0.5, b"* * * * *", ["*"] * 5, timedelta(hours=1)])
def test_what_is_not_text_is_no_expression(value):
    with pytest.raises(InvalidCronError, match="is text") as refusal:
        Cron.parse(value)

    assert refusal.value.expression == value


@pytest.mark.parametrize(
    "zone",
    ["Mars/Olympus", "", "../etc/passwd", "/etc/passwd", "Europe", "a\0b", "x" * 5000, None, 1, ["UTC"]],
)
def test_an_unknown_zone_is_refused_by_name(zone):
    with pytest.raises(ConfigurationError, match="Europe/Berlin") as refusal:
        Cron.parse("* * * * *", zone)

    assert repr(zone) in str(refusal.value)


def test_utc_needs_no_time_zone_database(monkeypatch):
    monkeypatch.setattr("monque._time.cron.ZoneInfo", {}.__getitem__)

    assert runs("@daily", "UTC", "2026-01-01T00:00Z", 1) == ["2026-01-02 00:00+00:00"]


# Daylight saving


@pytest.mark.parametrize(
    ("zone", "after", "expression", "expected"),
    [
        (
            NEW_YORK,
            "03-07T05:00",
            "30 2 * * *",
            ["03-07 02:30-05:00", "03-08 03:00-04:00", "03-09 02:30-04:00"],
        ),
        (NEW_YORK, "03-08T05:00", "0 2 * * *", ["03-08 03:00-04:00", "03-09 02:00-04:00"]),
        (NEW_YORK, "03-08T05:00", "0,30 2 * * *", ["03-08 03:00-04:00", "03-09 02:00-04:00"]),
        (NEW_YORK, "03-08T05:00", "0 2,3 * * *", ["03-08 03:00-04:00", "03-09 02:00-04:00"]),
        (NEW_YORK, "03-08T05:00", "30 2,3 * * *", ["03-08 03:00-04:00", "03-08 03:30-04:00"]),
        (NEW_YORK, "01-01T00:00", "30 2 8 3 *", ["03-08 03:00-04:00"]),
        (LORD_HOWE, "10-03T12:00", "15 2 * * *", ["10-04 02:30+11:00", "10-05 02:15+11:00"]),
        (SANTIAGO, "09-05T12:00", "0 0 * * *", ["09-06 01:00-03:00", "09-07 00:00-03:00"]),
        (TROLL, "03-28T12:00", "30 1 * * *", ["03-29 03:00+02:00", "03-30 01:30+02:00"]),
    ],
)
def test_a_fixed_time_in_the_gap_runs_once_at_its_end(zone, after, expression, expected):
    assert runs(expression, zone, f"2026-{after}Z", len(expected)) == [f"2026-{run}" for run in expected]


@pytest.mark.parametrize(
    ("zone", "after", "expression", "expected"),
    [
        (NEW_YORK, "11-01T04:00", "30 1 * * *", ["11-01 01:30-04:00", "11-02 01:30-05:00"]),
        (NEW_YORK, "11-01T04:00", "0 1,2 * * *", ["11-01 01:00-04:00", "11-01 02:00-05:00"]),
        (BERLIN, "10-24T12:00", "0 2 * * *", ["10-25 02:00+02:00", "10-26 02:00+01:00"]),
        (LORD_HOWE, "04-04T12:00", "45 1 * * *", ["04-05 01:45+11:00", "04-06 01:45+10:30"]),
        (SANTIAGO, "04-04T12:00", "30 23 * * *", ["04-04 23:30-03:00", "04-05 23:30-04:00"]),
        (
            TROLL,
            "10-24T12:00",
            "30 1,2 * * *",
            ["10-25 01:30+02:00", "10-25 02:30+02:00", "10-26 01:30+00:00"],
        ),
    ],
)
def test_a_fixed_time_in_the_repeated_hour_runs_once_the_first_time(zone, after, expression, expected):
    assert runs(expression, zone, f"2026-{after}Z", len(expected)) == [f"2026-{run}" for run in expected]


@pytest.mark.parametrize(
    "inside", ["2026-11-01T01:20-05:00", "2026-11-01T01:30-05:00", "2026-11-01T01:59:59.9-05:00"]
)
def test_from_within_the_second_showing_a_fixed_time_waits_for_the_next_day(inside):
    assert runs("30 1 * * *", NEW_YORK, inside, 1) == ["2026-11-02 01:30-05:00"]


def test_a_wildcard_hour_runs_every_real_hour():
    assert runs("0 * * * *", NEW_YORK, "2026-03-08T00:30-05:00", 3) == [
        "2026-03-08 01:00-05:00",
        "2026-03-08 03:00-04:00",
        "2026-03-08 04:00-04:00",
    ]
    assert runs("@hourly", NEW_YORK, "2026-11-01T00:30-04:00", 4) == [
        "2026-11-01 01:00-04:00",
        "2026-11-01 01:00-05:00",
        "2026-11-01 02:00-05:00",
        "2026-11-01 03:00-05:00",
    ]


@pytest.mark.parametrize("zone", [NEW_YORK, BERLIN, LORD_HOWE, SANTIAGO, TROLL, "Asia/Kathmandu", "UTC"])
@pytest.mark.parametrize(
    "day", ["2026-03-08", "2026-03-29", "2026-04-04", "2026-09-06", "2026-10-03", "2026-11-01"]
)
def test_every_quarter_of_an_hour_is_every_quarter_of_an_hour(zone, day):
    cron = Cron.parse("*/15 * * * *", zone)
    moments = [datetime.fromisoformat(f"{day}T00:00Z")]
    for _ in range(200):
        moments.append(cron.next_after(moments[-1]))

    assert {later - earlier for earlier, later in pairwise(moments)} == {timedelta(minutes=15)}


def test_a_wildcard_minute_goes_by_what_the_clock_shows():
    """As in vixie cron: times that are skipped do not run, times that come again do."""
    assert runs("*/30 1-3 * * *", NEW_YORK, "2026-03-08T00:00-05:00", 4) == [
        "2026-03-08 01:00-05:00",
        "2026-03-08 01:30-05:00",
        "2026-03-08 03:00-04:00",
        "2026-03-08 03:30-04:00",
    ]
    assert runs("*/30 1-3 * * *", NEW_YORK, "2026-11-01T00:00-04:00", 6) == [
        "2026-11-01 01:00-04:00",
        "2026-11-01 01:30-04:00",
        "2026-11-01 01:00-05:00",
        "2026-11-01 01:30-05:00",
        "2026-11-01 02:00-05:00",
        "2026-11-01 02:30-05:00",
    ]


def test_half_an_hour_of_daylight_saving_loses_no_wildcard_run():
    """cronsim itself steps by whole hours here, and misses 03:00 and the second 01:45."""
    assert runs("*/15 3 * * *", LORD_HOWE, "2026-10-04T01:50+10:30", 2) == [
        "2026-10-04 03:00+11:00",
        "2026-10-04 03:15+11:00",
    ]
    assert runs("45 * * * *", LORD_HOWE, "2026-04-05T01:00+11:00", 3) == [
        "2026-04-05 01:45+11:00",
        "2026-04-05 01:45+10:30",
        "2026-04-05 02:45+10:30",
    ]


def test_a_day_that_a_zone_left_out_runs_at_its_end():
    assert runs("0 10 * * *", "Pacific/Apia", "2011-12-29T12:00-10:00", 2) == [
        "2011-12-31 00:00+14:00",
        "2011-12-31 10:00+14:00",
    ]


# Properties

minutes = st.sampled_from(["*", "0", "30", "59", "*/7", "*/15", "*/30", "0,30", "10-20", "5/25", "45"])
hours = st.sampled_from(["*", "0", "1", "2", "3", "23", "*/2", "1-3", "2,3", "0-23"])
days = st.sampled_from(["*", "*", "*", "1", "29", "*/2", "L", "LW", "1-7"])
months = st.sampled_from(["*", "*", "*", "2", "JAN-MAR", "*/3"])
weekdays = st.sampled_from(["*", "*", "*", "0", "7", "MON-FRI", "5L", "TUE#1"])
expressions = st.tuples(minutes, hours, days, months, weekdays).map(" ".join)
moments = st.builds(
    datetime.fromtimestamp,
    st.integers(946684800, 2840140800) | st.floats(946684800, 2840140800),
    st.just(UTC),
)
changing = st.sampled_from(
    [NEW_YORK, BERLIN, LORD_HOWE, SANTIAGO, TROLL, "America/Havana", "Africa/Casablanca"]
)
steady = st.sampled_from(["UTC", "Asia/Kolkata", "Asia/Kathmandu", "America/Phoenix", "Asia/Tokyo"])
# Around the changes of 2026 in all of those zones.
changes = st.builds(
    lambda day, seconds: datetime.fromisoformat(f"2026-{day}T00:00Z") + timedelta(seconds=seconds),
    st.sampled_from(
        ["02-15", "03-08", "03-22", "03-29", "04-04", "04-05", "09-06", "10-03", "10-25", "11-01"]
    ),
    st.integers(-86400, 86400) | st.floats(-86400, 86400),
)


@given(expression=expressions, zone=changing | steady, moment=moments | changes)
def test_the_next_run_is_strictly_later_and_on_a_full_minute(expression, zone, moment):
    run = Cron.parse(expression, zone).next_after(moment)

    assert run > moment
    assert run.tzinfo is UTC
    assert (run.second, run.microsecond) == (0, 0)


@given(expression=expressions, zone=changing | steady, moment=moments | changes, share=st.floats(0, 1))
def test_nothing_runs_between_a_moment_and_its_next_run(expression, zone, moment, share):
    cron = Cron.parse(expression, zone)
    run = cron.next_after(moment)
    between = moment + (run - moment) * share

    assert cron.next_after(between) == run if between < run else cron.next_after(between) > run


def shows(calendar: CronSim, wall: datetime) -> bool:
    return (
        wall.minute in calendar.minutes
        and wall.hour in calendar.hours
        and wall.month in calendar.months
        and calendar.match_day(wall.date())
    )


def minute_by_minute(expression: str, zone: str, moment: datetime, until: datetime) -> datetime | None:
    """The first minute after *moment* that matches, by looking at a clock on the wall all the time."""
    calendar = CronSim(expression, moment)
    minute = timedelta(minutes=1)
    starred = any(field.startswith("*") for field in expression.split()[:2])
    now = moment.replace(second=0, microsecond=0) - timedelta(hours=4)  # to know what the clock showed before
    shown: set[datetime] = set()
    previous = None
    while now <= until:
        wall = now.astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0)
        due = shows(calendar, wall) and (starred or wall not in shown)
        if previous and not starred:
            skipped = range(1, int((wall - previous) / minute))
            due = due or any(shows(calendar, previous + count * minute) for count in skipped)
        if due and now > moment:
            return now
        shown.add(wall)
        previous = wall
        now += minute
    return None


@settings(max_examples=60, deadline=None)
@given(expression=expressions, zone=steady, moment=moments)
def test_without_clock_changes_it_is_the_first_matching_minute(expression, zone, moment):
    horizon = moment + timedelta(days=2)
    run = Cron.parse(expression, zone).next_after(moment)

    assert minute_by_minute(expression, zone, moment, horizon) == (run if run <= horizon else None)


@settings(max_examples=100, deadline=None)
@given(expression=expressions, zone=changing, moment=changes)
def test_across_clock_changes_it_is_the_minute_vixie_cron_would_pick(expression, zone, moment):
    horizon = moment + timedelta(days=1)
    run = Cron.parse(expression, zone).next_after(moment)

    assert minute_by_minute(expression, zone, moment, horizon) == (run if run <= horizon else None)


def test_an_unknown_name_is_answered_with_all_that_are_known() -> None:
    with pytest.raises(InvalidCronError) as refused:
        Cron.parse("@reboot")

    names = "@yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly"
    assert f"known are {names};" in str(refused.value)
    for name in names.split(", "):
        assert Cron.parse(name)


@pytest.mark.parametrize(
    ("zone", "name"),
    [(ZoneInfo("Europe/Berlin"), "Europe/Berlin"), (ZoneInfo("UTC"), "UTC"), (UTC, "UTC"), ("UTC", "UTC")],
)
def test_a_zone_may_be_an_object(zone: Any, name: str) -> None:
    assert Cron.parse("0 9 * * *", zone) == Cron.parse("0 9 * * *", name)


@pytest.mark.parametrize("zone", [timezone(timedelta(hours=2)), 7, None])
def test_a_zone_without_an_iana_name_is_refused(zone: Any) -> None:
    with pytest.raises(ConfigurationError, match="unknown time zone"):
        Cron.parse("0 9 * * *", zone)
