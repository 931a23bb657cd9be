"""Settings: one list of them for every signature, checked before anything is stored, resolved once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any, get_type_hints

import bson
import pytest
from bson import Int64

from monque import (
    ConfigurationError,
    Debounce,
    EnqueueOptions,
    Job,
    JobSettings,
    Keep,
    Limit,
    Monque,
    NewJob,
    Options,
    Retry,
    ScheduleOptions,
    ScheduleSettings,
    SyncMonque,
    SyncWorkers,
    Timeout,
    Unique,
    Worker,
    Workers,
    WorkerSettings,
)
from monque._api.enqueue import build
from monque._hosting.declare import CronSettings
from monque._store.document import policy_of, stored_policy
from monque._values.settings import (
    _CHECKS,
    Policy,
    check_job_settings,
    policy_of_call,
    resolve,
    worker_only,
)
from monque.fastapi import JobRouter, cron, job

SECOND = timedelta(seconds=1)
NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
EXAMPLES: dict[str, Any] = {
    "max_attempts": 4,
    "retry": Retry(first=3 * SECOND),
    "timeout": Timeout(30 * SECOND),
    "priority": 3,
    "expires": 90 * SECOND,
    "unique": Unique("k"),
    "debounce": Debounce(5 * SECOND),
    "store_result": True,
    "on_failure": "dead",
    "keep": Keep(completed=SECOND),
    "mode": "thread",
    "batch": "import",
    "after_batch": "download",
    "if_failed": "run",
    "allow_empty": True,
    "limit": Limit(5),
}
WRONG: dict[str, Any] = {
    "max_attempts": 0,
    "retry": 3,
    "timeout": 30,
    "priority": 10,
    "expires": 0 * SECOND,
    "unique": "k",
    "debounce": 5,
    "store_result": "yes",
    "on_failure": "two words",
    "keep": SECOND,
    "mode": "fork",
    "batch": 7,
    "after_batch": "",
    "if_failed": "skip",
    "allow_empty": "yes",
    "limit": "five",
}
OF_A_WORKER: Any = {name: value for name, value in EXAMPLES.items() if name in WorkerSettings.__annotations__}

OF_WORKERS = [
    Monque.worker,
    Workers.worker,
    SyncMonque.worker,
    SyncWorkers.worker,
    JobRouter.job,
    job,
]
OF_CALLS = [
    *(Monque.enqueue, Monque.now, Monque.schedule),
    *(SyncMonque.enqueue, SyncMonque.now, SyncMonque.schedule),
]


def built(new: NewJob[Any]) -> dict[str, Any]:
    """The document that would be stored."""
    return build(new, Workers(), Options(), now=NOW)[0]


def settings_of(function: Callable[..., Any]) -> str:
    [rest] = [p for p in inspect.signature(function).parameters.values() if p.kind is p.VAR_KEYWORD]
    return str(rest.annotation)


class TestSignatures:
    @pytest.mark.parametrize("function", OF_WORKERS, ids=lambda each: each.__qualname__)
    def test_whatever_declares_a_worker_takes_its_settings(self, function: Callable[..., Any]) -> None:
        assert settings_of(function) == "Unpack[WorkerSettings]"

    @pytest.mark.parametrize("function", [JobRouter.cron, cron], ids=lambda each: each.__qualname__)
    def test_what_declares_a_recurring_job_takes_those_of_its_schedule_too(
        self, function: Callable[..., Any]
    ) -> None:
        assert settings_of(function) == "Unpack[CronSettings]"
        both = {*WorkerSettings.__annotations__, *ScheduleSettings.__annotations__}
        assert set(CronSettings.__annotations__) == both

    @pytest.mark.parametrize("schedule", [Monque.schedule, SyncMonque.schedule])
    def test_a_schedule_spells_its_settings_as_parameters(self, schedule: Callable[..., Any]) -> None:
        parameters = inspect.signature(schedule).parameters

        for name, hint in ScheduleSettings.__annotations__.items():
            assert str(parameters[name].annotation) in str(hint)

    @pytest.mark.parametrize("function", OF_CALLS, ids=lambda each: each.__qualname__)
    def test_whatever_stores_a_job_takes_its_settings(self, function: Callable[..., Any]) -> None:
        assert settings_of(function) == "Unpack[JobSettings]"

    @pytest.mark.parametrize("options", [EnqueueOptions, ScheduleOptions])
    def test_the_options_of_a_workers_methods_hold_them_too(self, options: Any) -> None:
        assert set(JobSettings.__annotations__) < set(options.__annotations__)

    def test_a_new_job_spells_them_as_fields_of_the_same_types(self) -> None:
        spelled = {each.name: each for each in fields(NewJob)}
        places = {"Retry": Retry, **vars(inspect.getmodule(NewJob))}

        for name, hint in get_type_hints(JobSettings).items():
            assert spelled[name].default is None
            assert get_type_hints(NewJob, places)[name] == hint

    def test_each_setting_has_a_check_and_an_example_here(self) -> None:
        known = {*JobSettings.__annotations__, *WorkerSettings.__annotations__}

        assert set(_CHECKS) == known == set(EXAMPLES) == set(WRONG)

    @pytest.mark.parametrize("name", [each.name for each in fields(Policy)])
    def test_each_stored_field_is_checked_when_it_is_read(self, name: str) -> None:
        assert Policy.of_stored({name: "wrong"}) == Policy()


class TestWrongOnes:
    @pytest.mark.parametrize("name", WorkerSettings.__annotations__)
    def test_a_wrong_one_of_a_worker_is_named(self, name: str) -> None:
        for declare in (Monque("mongodb://localhost:1").worker, Workers().worker, SyncWorkers().worker):
            with pytest.raises(ConfigurationError, match=name):
                declare("work", lambda job: None, **{name: WRONG[name]})

    @pytest.mark.parametrize("name", WorkerSettings.__annotations__)
    def test_a_wrong_one_is_named_where_fastapi_declares_a_job(self, name: str) -> None:
        def work(job: Job[None]) -> None: ...

        for declare in (JobRouter().job, job):
            with pytest.raises(ConfigurationError, match=name):
                declare("work", **{name: WRONG[name]})(work)
        for declare in (JobRouter().cron, cron):
            with pytest.raises(ConfigurationError, match=name):
                declare("@daily", **{name: WRONG[name]})(work)

    @pytest.mark.parametrize("name", JobSettings.__annotations__)
    def test_a_wrong_one_of_a_job_is_named(self, name: str) -> None:
        wrong: dict[str, Any] = {name: WRONG[name]}

        with pytest.raises(ConfigurationError, match=name):
            built(NewJob("work", **wrong))

    def test_an_unknown_one_is_named_with_those_that_exist(self) -> None:
        with pytest.raises(ConfigurationError, match=r"'colour'; the settings are: max_attempts, retry"):
            Workers().worker("work", lambda job: None, colour=3)
        with pytest.raises(ConfigurationError, match=r"'colour'; the settings are: max_attempts, retry"):
            check_job_settings({"colour": 3})

    @pytest.mark.parametrize(
        ("given", "meant"),
        [
            ("retries", "max_attempts"),
            ("time_limit", "timeout"),
            ("timout", "timeout"),
            ("expire", "expires"),
            ("dealy", "delay"),
        ],
    )
    def test_what_was_meant_is_suggested(self, given: str, meant: str) -> None:
        with pytest.raises(ConfigurationError, match=rf"'{given}' \(did you mean {meant}\?\)"):
            check_job_settings({given: 3})

    @pytest.mark.parametrize(
        ("name", "function"), [("delay", "enqueue"), ("concurrency", "worker"), ("timezone", "schedule")]
    )
    def test_an_argument_of_another_function_is_said_to_be_one(self, name: str, function: str) -> None:
        with pytest.raises(ConfigurationError, match=rf"'{name}' \(that is an argument of {function}\)"):
            check_job_settings({name: 3})

    @pytest.mark.parametrize(
        "retry",
        [Retry(delay=lambda job, error: SECOND), Retry(retry_on=OSError), Retry(fail_on=(OSError,))],
        ids=["delay", "retry_on", "fail_on"],
    )
    def test_what_cannot_be_stored_belongs_to_the_worker(self, retry: Retry) -> None:
        [name] = worker_only(retry)

        with pytest.raises(ConfigurationError, match=rf"{name} of a Retry cannot be stored"):
            check_job_settings({"retry": retry})
        Workers().worker("work", lambda job: None, retry=retry)

    def test_two_numbers_of_attempts_that_differ_are_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="max_attempts=3 and retry=Retry"):
            check_job_settings({"max_attempts": 3, "retry": Retry(5)})
        assert check_job_settings({"max_attempts": 3, "retry": Retry(delays=[SECOND])})


class TestKept:
    def test_a_worker_keeps_its_settings(self) -> None:
        worker: Worker[Any] = Workers().worker("work", lambda job: None, **OF_A_WORKER)

        assert worker.settings == OF_A_WORKER

    def test_none_is_as_not_given(self) -> None:
        nothing: Any = dict.fromkeys(JobSettings.__annotations__)

        of_a_worker: Any = dict.fromkeys(OF_A_WORKER)

        assert Workers().worker("work", lambda job: None, **of_a_worker).settings == {}
        assert "policy" not in built(NewJob("work", **nothing))

    def test_the_settings_of_the_worker_are_not_stored_with_its_jobs(self) -> None:
        worker: Worker[Any] = Workers().worker("work", lambda job: None, **OF_A_WORKER)

        assert "policy" not in built(NewJob(worker, 1))


@pytest.mark.parametrize(
    ("settings", "stored"),
    [
        ({"max_attempts": 3}, {"maxAttempts": 3}),
        ({"retry": Retry(3)}, {"maxAttempts": 3}),
        ({"retry": Retry.never()}, {"maxAttempts": 1}),
        ({"retry": Retry(first=2 * SECOND)}, {"first": 2000}),
        ({"retry": Retry.fixed(SECOND)}, {"first": 1000, "factor": 1.0}),
        (
            {"retry": Retry(first=SECOND, factor=3, limit=60 * SECOND, jitter=0.5)},
            {"first": 1000, "limit": 60_000, "factor": 3.0, "jitter": 0.5},
        ),
        ({"retry": Retry(delays=[SECOND, 2 * SECOND])}, {"delays": [1000, 2000]}),
        ({"retry": Retry(5, delays=[SECOND])}, {"maxAttempts": 5, "delays": [1000]}),
        ({"retry": Retry(delays=[SECOND]), "max_attempts": 7}, {"maxAttempts": 7, "delays": [1000]}),
    ],
)
def test_only_what_the_call_gave_is_stored_and_it_is_read_again(settings: Any, stored: Any) -> None:
    policy = policy_of_call(check_job_settings(settings))
    assert policy is not None
    document = stored_policy(policy)

    assert document == stored
    durations = [document.get("first"), document.get("limit"), *document.get("delays", [])]
    assert all(type(each) is Int64 for each in durations if each is not None)
    assert all(type(document[name]) is float for name in ("factor", "jitter") if name in document)
    assert policy_of(bson.decode(bson.encode({"policy": document}))) == policy


@pytest.mark.parametrize("settings", [{}, {"retry": Retry()}])
def test_what_says_nothing_is_not_stored(settings: Any) -> None:
    assert policy_of_call(check_job_settings(settings)) is None


@pytest.mark.parametrize("policy", [None, 5, "text", [], [{"maxAttempts": 3}], {}])
def test_a_policy_that_is_none_says_nothing(policy: Any) -> None:
    assert resolve(policy_of({"policy": policy}), {}, Options()) == resolve(None, {}, Options())


@pytest.mark.parametrize("name", ["maxAttempts", "first", "limit", "factor", "jitter", "delays"])
@pytest.mark.parametrize(
    "value",
    [None, "1", -1, 0.5, float("nan"), float("inf"), 2**62, True, [], ["x"], [-1], {}, NOW, {"$gt": 1}],
    ids=str,
)
def test_values_of_others_that_make_no_sense_count_as_absent_or_are_read(name: str, value: Any) -> None:
    rules = resolve(policy_of({"policy": {name: value, "junk": 1}}), {}, Options())

    assert rules.max_attempts >= 1
    assert rules.wait.limit is None or rules.wait.limit > timedelta(0)


class TestResolve:
    def test_the_attempts_are_the_jobs_else_the_workers_else_those_of_the_options(self) -> None:
        options = Options(max_retries=7)

        assert resolve(None, {}, options).max_attempts == 7
        assert resolve(None, {"retry": Retry(6)}, options).max_attempts == 6
        assert resolve(None, {"retry": Retry(delays=[SECOND]), "max_attempts": 5}, options).max_attempts == 5
        assert resolve(Policy(max_attempts=4), {"max_attempts": 5}, options).max_attempts == 4
        assert resolve(Policy(delays=(SECOND,)), {"max_attempts": 5}, options).max_attempts == 2

    def test_the_wait_is_one_group(self) -> None:
        worker = Retry(first=SECOND, jitter=0.5)

        assert resolve(None, {"retry": worker}, Options()).wait == worker
        assert resolve(Policy(max_attempts=3), {"retry": worker}, Options()).wait == worker
        asked = resolve(Policy(limit=9 * SECOND), {"retry": worker}, Options()).wait
        assert (asked.first, asked.jitter, asked.limit) == (None, None, 9 * SECOND)

    def test_the_filters_are_the_workers_whatever_the_job_says(self) -> None:
        rules = resolve(
            Policy(first=SECOND), {"retry": Retry(retry_on=OSError, fail_on=[IOError])}, Options()
        )

        assert (rules.retry_on, rules.fail_on) == ((OSError,), (IOError,))
