"""Why a job does not run, as values: each rule, its sentence, and the order of the rules."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import ObjectId

from monque import Attempt, Histogram, Instance, InstanceWorker, Job, JobStatus, Pause, Schedule, Step, Wait
from monque._ops.explain import Around, Facts, Running, alike, explain
from monque._values.words import amount, clock, day, listed, ordinal, span

NOW = datetime(2026, 11, 20, 14, 2, 19, tzinfo=UTC)
ID = ObjectId("65f1c0ffee65f1c0ffee0001")


def ago(**span: float) -> datetime:
    return NOW - timedelta(**span)


def job(**fields: Any) -> Job[Any]:
    base: dict[str, Any] = {
        "id": ID,
        "name": "send-email",
        "data": None,
        "status": JobStatus.PENDING,
        "next_run_at": ago(minutes=1),
        "created_at": ago(hours=1),
        "updated_at": ago(minutes=4),
    }
    return Job(**{**base, **fields})


def instance(name: str = "web-1", **fields: Any) -> Instance:
    base: dict[str, Any] = {
        "id": name,
        "host": "host",
        "pid": 7,
        "version": "0.2.0",
        "python": "3.11",
        "release": None,
        "started_at": ago(hours=2),
        "seen_at": ago(seconds=3),
        "state": "running",
        "alive": True,
        "interval": timedelta(seconds=30),
        "slots": 5,
        "busy": 0,
        "change_stream": "live",
        "workers": (InstanceWorker(name="send-email", concurrency=5),),
        "settings": {"poll_interval": timedelta(seconds=1)},
    }
    return Instance(**{**base, **fields})


def facts(*instances: Instance, **known: Any) -> Facts:
    return Facts(**{"now": NOW, "instances": instances or (instance(),), **known})


def failed(number: int) -> Attempt:
    return Attempt(
        number=number,
        instance="web-1",
        started_at=ago(seconds=9),
        finished_at=ago(seconds=8),
        outcome="retried",
        error="TimeoutError",
        message="",
    )


def full(name: str = "web-1", **fields: Any) -> Instance:
    worker = InstanceWorker(name="send-email", concurrency=5, active=5)
    return instance(name, busy=5, workers=(worker,), **fields)


def histogram(milliseconds: float) -> Histogram:
    return Histogram({Histogram.bucket_of(milliseconds): 100})


TIMEOUT = "TimeoutError: no answer within 5 s\nmore of it"

ROWS: list[tuple[str, str, Job[Any], Facts]] = [
    (
        "finished",
        "It completed 4 min ago after 1.2 s.",
        job(status=JobStatus.COMPLETED),
        facts(ran=timedelta(seconds=1.2)),
    ),
    ("finished", "It completed 4 min ago.", job(status=JobStatus.COMPLETED), facts()),
    (
        "finished",
        "An operator cancelled it 4 min ago: wrong customer.",
        job(status=JobStatus.CANCELLED, cancelled_by="operator", cancel_reason="wrong customer."),
        facts(),
    ),
    (
        "finished",
        "It had expired when a worker came to it, and was cancelled 4 min ago.",
        job(status=JobStatus.CANCELLED, cancelled_by="expiry"),
        facts(),
    ),
    (
        "given-up",
        "It failed 10 of 10 times, last 3 h ago: TimeoutError: no answer within 5 s; "
        "214 others failed the same way.",
        job(status=JobStatus.FAILED, fail_count=10, fail_reason=TIMEOUT, updated_at=ago(hours=3)),
        facts(around=Around(alike=214)),
    ),
    (
        "given-up",
        "It was given up 4 min ago: its process died 3 time(s).",
        job(status=JobStatus.FAILED, fail_count=0, fail_reason="its process died 3 time(s)"),
        facts(),
    ),
    (
        "given-up",
        "It failed 1 time and is not to be tried again, last 4 min ago: ValueError.",
        job(status=JobStatus.FAILED, fail_count=1, fail_reason="ValueError"),
        facts(),
    ),
    (
        "running",
        "It has been running for 12 min on web-1, heard of 8 s ago; 95 % of its kind take less than 2.5 s.",
        job(
            status=JobStatus.PROCESSING,
            claimed_by="web-1",
            claimed_at=ago(minutes=12),
            last_heartbeat=ago(seconds=8),
        ),
        facts(around=Around(ran=histogram(2_000))),
    ),
    (
        "running",
        "It is running on ts-1, heard of 8 s ago.",
        job(
            status=JobStatus.PROCESSING,
            claimed_by="ts-1",
            claimed_at=ago(days=12),  # of an earlier claim: its owner does not know the field
            last_heartbeat=ago(seconds=8),
        ),
        facts(),
    ),
    (
        "running",
        "It is running on web-2, heard of 8 s ago; an operator has asked it to stop, and its handler has not "
        "ended yet.",
        job(
            status=JobStatus.PROCESSING,
            claimed_by="web-2",
            last_heartbeat=ago(seconds=8),
            cancel_requested=True,
        ),
        facts(),
    ),
    (
        "running",
        "It is running on web-2, heard of 8 s ago; its handler was told to stop 40 s ago and is stuck.",
        job(
            status=JobStatus.PROCESSING,
            claimed_by="web-2",
            last_heartbeat=ago(seconds=8),
            stuck_since=ago(seconds=40),
        ),
        facts(),
    ),
    (
        "owner-silent",
        "Its owner web-3 has been silent for 2 min; others take the job over within 30 s.",
        job(status=JobStatus.PROCESSING, claimed_by="web-3", last_heartbeat=ago(minutes=2)),
        facts(),
    ),
    (
        "owner-silent",
        "Its owner web-3 has been silent for 2 min; no live instance is there that could take the job over.",
        job(status=JobStatus.PROCESSING, claimed_by="web-3", last_heartbeat=ago(minutes=2)),
        facts(instance("web-3", alive=False)),
    ),
    (
        "backing-off",
        "Attempt 3 failed at 14:02:11 UTC; the next is in 8 s.",
        job(next_run_at=ago(seconds=-8), fail_count=3, fail_reason="x", history=(failed(2), failed(3))),
        facts(),
    ),
    (
        "scheduled",
        "Its next time is Monday 09:00 Europe/Berlin, in 2 d 17 h.",
        job(
            next_run_at=datetime(2026, 11, 23, 8, tzinfo=UTC),
            cron="0 9 * * MON",
            timezone="Europe/Berlin",
        ),
        facts(),
    ),
    (
        "delayed",
        "It was stored to run at 14:07:19 UTC, in 5 min.",
        job(next_run_at=ago(minutes=-5)),
        facts(),
    ),
    (
        "delayed",
        "Its handler has put it off for the 3rd time: it runs again at 14:07:19 UTC, in 5 min.",
        job(next_run_at=ago(minutes=-5), snooze_count=3),
        facts(),
    ),
    (
        "sleeping",
        'It sleeps in "cool-off" until 14:07:19 UTC, in 5 min.',
        job(
            fail_count=2,
            next_run_at=ago(minutes=-5),
            waits_for=Wait(why="time", since=ago(hours=1), until=ago(minutes=-5)),
            steps=(Step(name="cool-off", kind="sleep", at=ago(hours=1), until=ago(minutes=-5)),),
        ),
        facts(),
    ),
    (
        "awaits-signal",
        'It waits for the signal "picked-up" since 13:02:19 UTC, until 14:07:19 UTC, in 5 min.',
        job(
            next_run_at=ago(minutes=-5),
            waits_for=Wait(why="signal", since=ago(hours=1), until=ago(minutes=-5), signal="picked-up"),
        ),
        facts(),
    ),
    (
        "awaits-signal",
        'It waits for the signal "picked-up" since 13:02:19 UTC, without an end.',
        job(
            next_run_at=None,
            is_parked=True,
            waits_for=Wait(why="signal", since=ago(hours=1), signal="picked-up"),
        ),
        facts(),
    ),
    (
        "awaits-batch",
        'It waits for 3 of 20 jobs of "pack" since 13:02:19 UTC, until 14:07:19 UTC, in 5 min.',
        job(
            next_run_at=ago(minutes=-5),
            waits_for=Wait(why="batch", since=ago(hours=1), until=ago(minutes=-5), batch=f"{ID}/0/pack"),
        ),
        facts(around=Around(batch=(3, 20))),
    ),
    (
        "awaits-batch",
        'It waits for the batch "import-42" since 13:02:19 UTC; none of its jobs is left, so it is woken in '
        "a minute.",
        job(
            next_run_at=None,
            is_parked=True,
            waits_for=Wait(why="batch", since=ago(hours=1), batch="import-42"),
        ),
        facts(around=Around(batch=(0, 20))),
    ),
    (
        "awaits-turn",
        "It waits for its turn since 13:02:19 UTC: 2 of customer-7 run, 41 wait before it.",
        job(
            next_run_at=None,
            is_parked=True,
            waits_for=Wait(why="turn", since=ago(hours=1), line="customer-7"),
        ),
        facts(around=Around(line=(2, 41))),
    ),
    (
        "awaits-turn",
        "It waits for its turn since 13:02:19 UTC: 1 of its line runs, 0 wait before it.",
        job(next_run_at=None, is_parked=True, waits_for=Wait(why="turn", since=ago(hours=1))),
        facts(around=Around(line=(1, 0))),
    ),
    (
        "awaits-turn",
        "It waits for its turn: 2 jobs of this name run, and a limit says how many may.",
        job(),
        facts(around=Around(turns=2)),
    ),
    (
        "parked",
        "It is parked: it has no time, and waits for whatever will give it one.",
        job(next_run_at=None, is_parked=True),
        facts(),
    ),
    (
        "parked",
        "Its schedule was paused 20 min ago and waits until it is resumed.",
        job(next_run_at=None, is_parked=True, cron="* * * * *"),
        facts(
            schedule=Schedule(
                id=ID,
                name="send-email",
                key="send-email",
                cron="* * * * *",
                timezone=None,
                state="paused",
                next_run_at=None,
                paused_at=ago(minutes=20),
            )
        ),
    ),
    (
        "expired",
        "It expired 10 s ago and will not run: the next worker that comes to it cancels it.",
        job(expires_at=ago(seconds=10)),
        facts(),
    ),
    (
        "paused",
        'ada paused send-email 20 min ago ("provider down").',
        job(),
        facts(pause=Pause(name="send-email", since=ago(minutes=20), by="ada", reason="provider down")),
    ),
    (
        "paused",
        "Somebody paused all job names, until 15:00 UTC.",
        job(),
        facts(pause=Pause(name=None, since=None, until=datetime(2026, 11, 20, 15, tzinfo=UTC))),
    ),
    (
        "no-instance",
        "No instance has reported since 13:55 UTC.",
        job(),
        facts(instance(alive=False, seen_at=datetime(2026, 11, 20, 13, 55, tzinfo=UTC))),
    ),
    ("no-instance", "No instance has reported yet.", job(), Facts(now=NOW)),
    (
        "no-instance",
        "No instance has reported yet, but ts-1 holds claims and reports nothing (TypeScript, or an older "
        "version).",
        job(),
        Facts(now=NOW, unregistered=("ts-1",)),
    ),
    (
        "no-worker",
        "None of 4 live instances has a worker for send-mail. Did you mean send-email?",
        job(name="send-mail"),
        facts(*(instance(f"web-{number}") for number in range(4))),
    ),
    (
        "no-worker",
        "The only live instance has no worker for resize.",
        job(name="resize"),
        facts(instance()),
    ),
    (
        "workers-off",
        "web-1 and web-2 have this worker switched off (--only or --except); web-3 is stopping.",
        job(),
        facts(
            *(
                instance(name, workers=(InstanceWorker(name="send-email", concurrency=5, off=True),))
                for name in ("web-1", "web-2")
            ),
            instance("web-3", state="stopping"),
        ),
    ),
    (
        "limited",
        "30 of the 40 jobs before it have a higher priority, and all 5 slots for send-email on 1 instance "
        "are busy; at 10 a minute that is about 4 min.",
        job(),
        facts(full(), around=Around(ahead=40, urgent_ahead=30, per_minute=10)),
    ),
    (
        "slots-full",
        "All 15 slots for send-email on 3 instances are busy; 1,204 jobs are before it; "
        "at 340 a minute that is about 3 min. Longest running: abc, for 20 s on web-2.",
        job(),
        facts(
            *(full(f"web-{number}") for number in range(3)),
            around=Around(
                ahead=1204,
                urgent_ahead=1,
                per_minute=340,
                longest=Running(id="abc", since=ago(seconds=20), by="web-2"),
            ),
        ),
    ),
    (
        "slots-full",
        "All 5 slots for send-email on 1 instance are busy; it is the next one.",
        job(),
        facts(full(), around=Around(ahead=0)),
    ),
    (
        "slots-full",
        "All 5 slots for send-email on 1 instance are busy; more than 10,000 jobs are before it.",
        job(),
        facts(full(), around=Around(ahead=10_000, is_capped=True, per_minute=3)),
    ),
    (
        "just-due",
        "It became due 300 ms ago; pick-up usually takes 8 ms.",
        job(next_run_at=ago(milliseconds=300)),
        facts(around=Around(waited=histogram(7))),
    ),
    ("just-due", "It became due 4 s ago.", job(next_run_at=ago(seconds=4)), facts()),
    (
        "just-due",
        "It became due 60 s ago; pick-up usually takes 51 s.",
        job(),
        facts(around=Around(waited=histogram(50_000))),
    ),
    (
        "polling",
        "No change stream: instances look every 1 s.",
        job(),
        facts(instance(change_stream="off")),
    ),
    ("unclear", "Nothing that we can see stands in its way.", job(), facts()),
    (
        "odd",
        "Its status is 'sleeping', which Monque does not know, so nobody touches it. "
        "Somebody else must have written it.",
        job(status="sleeping"),
        facts(),
    ),
    (
        "odd",
        "It is pending without a date, so nobody can claim it. Somebody else must have written it.",
        job(next_run_at=None),
        facts(),
    ),
    (
        "odd",
        "Its attempts are not stored as a number, so the server refuses every claim of it. "
        "Somebody else must have written it.",
        job(),
        facts(is_claimable=False),
    ),
    (
        "odd",
        "Its name is not a text but 7, so it has no worker. Somebody else must have written it.",
        job(name=7),
        facts(),
    ),
]


@pytest.mark.parametrize(("code", "sentence", "given", "known"), ROWS)
def test_each_situation_has_its_sentence(code: str, sentence: str, given: Job[Any], known: Facts) -> None:
    found = explain(given, known)

    assert (found.code, found.sentence) == (code, sentence)


def test_of_all_that_keeps_a_due_job_waiting_the_first_reason_is_told() -> None:
    """Each step takes away what the answer before it was about."""
    pause = Pause(name=None, since=ago(minutes=1))
    off = instance(workers=(InstanceWorker(name="send-email", concurrency=5, active=5, off=True),))
    waiting = facts(instance(alive=False), pause=pause, around=Around(ahead=1, urgent_ahead=1))
    steps: list[tuple[str, Job[Any], Facts]] = [
        ("expired", job(expires_at=ago(seconds=1)), waiting),
        ("paused", job(), waiting),
        ("no-instance", job(), replace(waiting, pause=None)),
        ("no-worker", job(name="other"), replace(waiting, pause=None, instances=(off,))),
        ("workers-off", job(), replace(waiting, pause=None, instances=(off,))),
        ("limited", job(), replace(waiting, pause=None, instances=(full(change_stream="off"),))),
        ("slots-full", job(next_run_at=NOW), facts(full(change_stream="off"), around=Around(ahead=1))),
        ("just-due", job(next_run_at=NOW), facts(instance(change_stream="off"))),
        ("polling", job(), facts(instance(change_stream="off"))),
        ("unclear", job(), facts()),
    ]

    assert [explain(given, known).code for _, given, known in steps] == [code for code, _, _ in steps]


def test_a_reason_that_rests_on_the_register_is_only_likely_while_others_hold_claims() -> None:
    for known in (
        Facts(now=NOW),
        facts(instance(workers=())),
        facts(instance(state="stopping")),
        facts(full()),
    ):
        assert explain(job(), known).certainty == "certain"
        assert explain(job(), replace(known, unregistered=("ts-1",))).certainty == "likely"


def test_polling_explains_a_wait_only_until_the_next_look() -> None:
    polls = facts(instance(change_stream="polling", settings={"poll_interval": timedelta(minutes=2)}))
    assert explain(job(), polls).certainty == "certain"
    assert explain(job(next_run_at=ago(minutes=9)), polls).certainty == "likely"


def test_without_the_register_nothing_is_claimed_about_instances() -> None:
    found = explain(job(), Facts(now=NOW, instances=None))

    assert found.code == "unclear"
    assert ("register of instances", "cannot be read by this user") in [
        (each.label, each.value) for each in found.evidence
    ]


def test_an_instance_with_a_random_id_is_called_by_its_machine() -> None:
    owner = "2d41ba7f-e778-44bf-97cd-986ea2c7bac7"
    running = job(status=JobStatus.PROCESSING, claimed_by=owner, last_heartbeat=ago(seconds=8))
    assert "on host (process 7)," in explain(running, facts(instance(owner))).sentence


def test_an_owner_that_is_silent_is_not_called_running() -> None:
    owned = job(status=JobStatus.PROCESSING, claimed_by="web-3", last_heartbeat=ago(minutes=2))
    found = explain(owned, facts(instance("web-3", alive=False), instance()))
    assert ("owner", "web-3: silent") in [(each.label, each.value) for each in found.evidence]


def test_remedies_can_be_pasted_into_a_shell() -> None:
    found = explain(job(name="it's; rm"), facts())
    assert found.remedies[0].command == "monque worker MODULE:ATTR --only 'it'\"'\"'s; rm'"
    parked = job(next_run_at=None, is_parked=True, cron="@daily", unique_key="a b")
    assert explain(parked, facts()).remedies[0].command == (
        "monque schedules resume send-email --unique-key 'a b'"
    )
    waits = job(next_run_at=None, is_parked=True, waits_for=Wait(why="signal", since=NOW, signal="it's; rm"))
    assert explain(waits, facts()).remedies[0].command == f"monque jobs signal {ID} 'it'\"'\"'s; rm'"


def test_errors_are_alike_whatever_numbers_and_texts_they_hold() -> None:
    others = ["KeyError: 'b'", "KeyError: 'c'\nmore", "KeyError: b", "order 7 of 65f1c0ffee: no"]
    assert alike("KeyError: 'a'", others) == 2
    assert alike("order 12 of 12ab34cd56: no", others) == 1


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (timedelta(seconds=-1), "0 ms"),
        (timedelta(milliseconds=6), "6 ms"),
        (timedelta(seconds=1), "1 s"),
        (timedelta(seconds=9.96), "10 s"),
        (timedelta(seconds=90), "90 s"),
        (timedelta(minutes=59, seconds=59), "59 min"),
        (timedelta(hours=3), "3 h"),
        (timedelta(hours=2, minutes=5), "2 h 5 min"),
        (timedelta(days=2, hours=3), "2 d 3 h"),
        (timedelta(days=4000), "4,000 d"),
    ],
)
def test_durations_are_short_and_exact_enough(time: timedelta, text: str) -> None:
    assert span(time) == text


def test_times_and_numbers_in_sentences() -> None:
    assert clock(ago(days=1), NOW) == "2026-11-19 14:02 UTC"
    assert day(datetime(2027, 3, 1, 8, tzinfo=UTC), NOW, "Europe/Berlin") == (
        "Monday 1 March 2027, 09:00 Europe/Berlin"
    )
    assert day(NOW, NOW, "Mars/Base") == day(NOW, NOW, 7) == "Friday 14:02 UTC"
    assert day(datetime.max.replace(tzinfo=UTC), NOW, "Asia/Tokyo").endswith("23:59 UTC")
    assert [amount(1, "job"), amount(1204, "job")] == ["1 job", "1,204 jobs"]
    assert [ordinal(number) for number in (1, 2, 3, 4, 11, 22)] == [
        "1st",
        "2nd",
        "3rd",
        "4th",
        "11th",
        "22nd",
    ]
    assert listed(["a"]) == "a"
    assert listed(list("abcd")) == "a, b, c and d"
    assert listed(list("abcde")) == "a, b, c and 2 others"
