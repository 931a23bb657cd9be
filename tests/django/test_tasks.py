"""What Django's documentation says about tasks, a test for each sentence."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from time import monotonic
from typing import Any

import pytest

from monque import PayloadError, SyncMonque
from monque.django.results import job_name, monque_priority, split_name

from .conftest import Configure, Work


@pytest.fixture
def tasks(backend: Any) -> Any:
    from support.djangoapp import tasks

    return tasks


@pytest.fixture
def interface(project: None) -> Any:
    from support.djangoapp import interface

    return interface


def ascii_of(value: object) -> str:
    return ascii(value)[:20]


def finish(work: Work, result: Any) -> Any:
    """Run what is due, again and again, until this result is finished, and return it."""
    deadline = monotonic() + 30
    while not result.is_finished:
        assert monotonic() < deadline, result
        work()
        result.refresh()
    return result


class TestDefinition:
    def test_the_decorator_returns_a_task(self, tasks: Any, interface: Any) -> None:
        assert isinstance(tasks.add, interface.Task)

    def test_attributes_are_given_to_the_decorator(self, tasks: Any) -> None:
        assert (tasks.send.priority, tasks.send.queue_name) == (50, "emails")

    def test_the_defaults(self, tasks: Any) -> None:
        task = tasks.add

        assert (task.priority, task.backend, task.queue_name, task.run_after) == (
            0,
            "default",
            "default",
            None,
        )
        assert not task.takes_context

    def test_a_task_can_be_called_without_a_queue(self, tasks: Any) -> None:
        from asgiref.sync import async_to_sync

        assert tasks.add.call(1, 2) == 3
        assert tasks.add_later.call(1, 2) == 3
        assert async_to_sync(tasks.add.acall)(1, 2) == 3

    def test_its_name_is_that_of_the_function(self, tasks: Any) -> None:
        assert tasks.add.name == "add"
        assert tasks.add.module_path == "support.djangoapp.tasks.add"

    def test_using_creates_a_new_task_and_leaves_the_existing_one_unchanged(self, tasks: Any) -> None:
        assert tasks.add.using(priority=10).priority == 10
        assert tasks.add.priority == 0

    def test_attributes_cannot_be_modified(self, tasks: Any) -> None:
        with pytest.raises(AttributeError):
            tasks.add.priority = 5

    def test_a_function_that_is_not_at_module_level_is_refused(self, tasks: Any, interface: Any) -> None:
        with pytest.raises(interface.InvalidTask, match="module level"):

            @interface.task
            def inner() -> None: ...

    @pytest.mark.parametrize("priority", [-101, 101, 1.5])
    def test_a_priority_is_a_whole_number_from_minus_100_to_100(
        self, tasks: Any, interface: Any, priority: Any
    ) -> None:
        with pytest.raises(interface.InvalidTask, match="whole number"):
            tasks.add.using(priority=priority)

    def test_a_queue_must_be_one_of_the_setting(self, tasks: Any, interface: Any) -> None:
        with pytest.raises(interface.InvalidTask, match="'unknown' is not valid"):
            tasks.add.using(queue_name="unknown")

    def test_a_task_that_is_no_longer_valid_is_not_enqueued(
        self, tasks: Any, interface: Any, configure: Configure
    ) -> None:
        configure(queues=["default"])

        with pytest.raises(interface.InvalidTask, match="'emails' is not valid"):
            tasks.send.enqueue("ada@example.org")

    def test_unless_queues_is_empty(self, tasks: Any, configure: Configure, work: Work) -> None:
        configure(queues=[])

        result = tasks.add.using(queue_name="unknown").enqueue(1)
        work(["unknown"])

        assert tasks.add.get_result(result.id).return_value == 1

    @pytest.mark.parametrize("queue", ["two words", "a:b", ""])
    def test_a_queue_that_cannot_be_part_of_a_job_name_is_refused(
        self, tasks: Any, interface: Any, configure: Configure, queue: str
    ) -> None:
        configure(queues=[])

        with pytest.raises(interface.InvalidTask, match="without whitespace and ':'"):
            tasks.add.using(queue_name=queue)

    def test_a_context_must_be_the_first_argument(self, tasks: Any, interface: Any) -> None:
        with pytest.raises(interface.InvalidTask, match="'context'"):
            interface.task(takes_context=True)(tasks.plain)

    def test_run_after_must_be_aware_in_a_project_with_time_zones(self, tasks: Any, interface: Any) -> None:
        with pytest.raises(interface.InvalidTask, match="aware"):
            tasks.add.using(run_after=datetime(2030, 1, 1))  # noqa: DTZ001 - that is the point

    def test_settings_of_monque_can_be_given_to_the_decorator(self, tasks: Any, interface: Any) -> None:
        import django

        if django.VERSION[:2] == (6, 0):
            pytest.skip("the decorator takes them from Django 6.1 on")
        declared = interface.task(max_attempts=3, timeout=timedelta(minutes=1), concurrency=2)(tasks.plain)

        assert (declared.max_attempts, declared.timeout, declared.concurrency) == (3, timedelta(minutes=1), 2)

    @pytest.mark.parametrize("wrong", [{"max_attempts": 0}, {"timeout": 5}, {"concurrency": 0}])
    def test_wrong_ones_are_refused(self, tasks: Any, interface: Any, wrong: dict[str, Any]) -> None:
        from monque.django import MonqueTask

        with pytest.raises(interface.InvalidTask, match=next(iter(wrong))):
            MonqueTask(
                func=tasks.plain, priority=0, backend="default", queue_name="default", run_after=None, **wrong
            )

    def test_an_unknown_backend_is_refused(self, tasks: Any) -> None:
        from django.core.exceptions import ImproperlyConfigured

        with pytest.raises(ImproperlyConfigured, match="unknown"):
            tasks.add.using(backend="unknown")

    def test_the_backend_supports_everything(self, backend: Any, interface: Any, tasks: Any) -> None:
        assert tasks.add.get_backend() is interface.task_backends["default"] is backend
        assert backend.supports_defer
        assert backend.supports_async_task
        assert backend.supports_get_result
        assert backend.supports_priority

    def test_they_count_before_the_option(self, tasks: Any) -> None:
        from monque import Retry
        from monque.django.declared import MonqueTask, worker_settings

        def settings(**given: Any) -> Any:
            like = {"priority": 0, "backend": "default", "queue_name": "default", "run_after": None}
            return worker_settings(MonqueTask(func=tasks.plain, **like, **given), max_attempts=4)

        assert settings()["max_attempts"] == 4
        assert settings(max_attempts=2)["max_attempts"] == 2
        retry = settings(retry=Retry(7))
        assert (retry["max_attempts"], retry["retry"]) == (None, Retry(7))
        assert worker_settings(object(), max_attempts=4)["max_attempts"] == 4  # of another backend


class TestEnqueueing:
    def test_it_returns_a_result_that_is_ready(self, tasks: Any, interface: Any) -> None:
        result = tasks.add.enqueue(1, right=2)

        assert isinstance(result, interface.TaskResult)
        assert result.status == interface.TaskResultStatus.READY
        assert not result.is_finished
        assert result.enqueued_at is not None
        assert (result.started_at, result.last_attempted_at, result.finished_at) == (None, None, None)
        assert (result.args, result.kwargs) == ([1], {"right": 2})
        assert (result.attempts, result.errors, result.worker_ids) == (0, [], [])
        assert result.backend == "default"
        assert result.task.func is tasks.add.func

    def test_its_id_is_a_text_of_less_than_64_characters(self, tasks: Any) -> None:
        result = tasks.add.enqueue(1)

        assert isinstance(result.id, str)
        assert len(result.id) < 64

    async def test_aenqueue_is_the_async_variant(self, tasks: Any) -> None:
        result = await tasks.add.aenqueue(1, 2)

        assert (await tasks.add.aget_result(result.id)).id == result.id

    async def test_what_would_block_an_event_loop_is_refused(self, tasks: Any) -> None:
        from django.core.exceptions import SynchronousOnlyOperation

        with pytest.raises(SynchronousOnlyOperation, match="await task"):
            tasks.add.enqueue(1)
        with pytest.raises(SynchronousOnlyOperation, match="aget_result"):
            tasks.add.get_result("1")

    def test_aenqueue_works_in_the_loops_that_async_to_sync_makes(self, tasks: Any) -> None:
        from asgiref.sync import async_to_sync

        ids = {async_to_sync(tasks.add.aenqueue)(number).id for number in range(3)}

        assert len(ids) == 3

    def test_arguments_make_a_round_trip_through_json(self, tasks: Any, work: Work) -> None:
        result = tasks.echo.enqueue((1, 2.5), b"bytes", None, key={"list": [True], 7: "seven"})
        work()

        assert tasks.seen == [(([1, 2.5], "bytes", None), {"key": {"list": [True], "7": "seven"}})]
        assert tasks.echo.get_result(result.id).args == [[1, 2.5], "bytes", None]

    @pytest.mark.parametrize("argument", [datetime(2030, 1, 1, tzinfo=UTC), object(), {1, 2}])
    def test_arguments_that_are_no_json_are_refused(
        self, tasks: Any, monque: SyncMonque, argument: Any
    ) -> None:
        with pytest.raises(TypeError):
            tasks.add.enqueue(argument)
        with pytest.raises(TypeError):
            tasks.add.enqueue(1, right=argument)

        assert monque.estimated_count() == 0

    @pytest.mark.parametrize("argument", [2**64, "\ud800", {"a\0b": 1}, "x" * 2**24], ids=ascii_of)
    def test_arguments_that_mongodb_cannot_hold_are_refused(
        self, tasks: Any, monque: SyncMonque, argument: Any
    ) -> None:
        with pytest.raises(PayloadError, match=r"support\.djangoapp\.tasks\.add"):
            tasks.add.enqueue(argument)

        assert monque.estimated_count() == 0

    def test_a_task_that_relies_on_a_type_that_json_lacks_fails(self, tasks: Any, work: Work) -> None:
        result = finish(work, tasks.double_dictionary.enqueue((1, 2, 3)))

        assert result.status == "FAILED"
        assert "unhashable type: 'list'" in result.errors[0].traceback

    def test_keys_that_mongodb_has_a_meaning_for_are_data(self, tasks: Any, work: Work) -> None:
        tasks.add.enqueue({"$set": {"a.b": 1}}, {})
        result = tasks.echo.enqueue({"$set": {"a.b": 1}})
        work(["default"])

        assert result.args == [{"$set": {"a.b": 1}}]
        assert (({"$set": {"a.b": 1}},), {}) in tasks.seen

    def test_a_task_is_not_run_before_its_time(self, tasks: Any, work: Work) -> None:
        after = datetime.now(UTC) + timedelta(hours=1)
        result = tasks.add.using(run_after=after).enqueue(1)
        work()

        result = tasks.add.get_result(result.id)
        assert result.status == "READY"
        assert abs(result.task.run_after - after) < timedelta(milliseconds=1)

    def test_a_time_can_be_relative(self, tasks: Any, monque: SyncMonque) -> None:
        result = tasks.add.using(run_after=timedelta(hours=1)).enqueue(1)

        (job,) = monque.get_jobs()
        assert timedelta(minutes=59) < job.next_run_at - job.created_at < timedelta(minutes=61)
        assert result.task.run_after is not None

    def test_a_project_without_time_zones_has_naive_times(self, tasks: Any, work: Work) -> None:
        from django.test import override_settings

        with override_settings(USE_TZ=False, TIME_ZONE="Europe/Berlin"):
            after = datetime.now() + timedelta(hours=1)  # noqa: DTZ005 - that is the point
            later = tasks.add.using(run_after=after).enqueue(1)
            now = tasks.add.enqueue(2)
            work()

            assert abs(tasks.add.get_result(later.id).task.run_after - after) < timedelta(seconds=1)
            assert not tasks.add.get_result(later.id).is_finished
            assert tasks.add.get_result(now.id).finished_at.tzinfo is None

    def test_inside_a_transaction_it_is_bound_to_the_commit(self, tasks: Any, monque: SyncMonque) -> None:
        from django.db import transaction

        with transaction.atomic():
            transaction.on_commit(partial(tasks.add.enqueue, 1))
            assert monque.estimated_count() == 0
        assert monque.estimated_count() == 1

        with transaction.atomic():
            transaction.on_commit(partial(tasks.add.enqueue, 1))
            transaction.set_rollback(True)
        assert monque.estimated_count() == 1


class TestPriorities:
    def test_they_map_monotonically(self) -> None:
        mapped = [monque_priority(priority) for priority in range(-100, 101)]

        assert mapped == sorted(mapped)
        assert set(mapped[:101]) == {0}
        assert (mapped[101], mapped[-1]) == (1, 9)
        assert set(mapped[101:]) == set(range(1, 10))

    def test_larger_ones_are_run_sooner(self, tasks: Any, work: Work, configure: Configure) -> None:
        configure(instance_concurrency=1)
        for priority in (0, -100, 30, 100):
            tasks.add.using(priority=priority).enqueue(priority)
        work()

        assert [left for left, _ in tasks.seen][:2] == [100, 30]

    def test_a_result_has_the_priority_that_was_asked_for(self, tasks: Any) -> None:
        result = tasks.add.using(priority=-7).enqueue(1)

        assert tasks.add.get_result(result.id).task.priority == -7


class TestQueues:
    def test_the_queue_is_the_first_part_of_the_job_name(self, tasks: Any, monque: SyncMonque) -> None:
        tasks.add.enqueue(1)
        tasks.send.enqueue("ada@example.org")

        names = {job.name for job in monque.get_jobs()}
        assert names == {"default:support.djangoapp.tasks.add", "emails:support.djangoapp.tasks.send"}
        assert {split_name(name)[0] for name in names} == {"default", "emails"}

    def test_a_worker_can_serve_some_queues_only(self, tasks: Any, work: Work) -> None:
        plain = tasks.send.using(queue_name="default").enqueue("grace@example.org")
        tasks.send.enqueue("ada@example.org")
        work(["emails"])

        assert tasks.seen == ["ada@example.org"]
        assert not tasks.send.get_result(plain.id).is_finished
        work()
        assert tasks.send.get_result(plain.id).task.queue_name == "default"
        assert tasks.send.get_result(plain.id).is_finished

    def test_a_task_can_be_enqueued_on_another_backend_than_its_own(
        self, tasks: Any, work: Work, configure: Configure, interface: Any
    ) -> None:
        configure(alias="second", collection="second_jobs")
        result = tasks.add.using(backend="second").enqueue(4, 5)
        work(alias="second")

        assert result.backend == "second"
        assert interface.task_backends["second"].get_result(result.id).return_value == 9
        with pytest.raises(interface.TaskResultDoesNotExist):
            interface.task_backends["default"].get_result(result.id)

    @pytest.mark.parametrize("name", ["send-email", ":x", "x:"])
    def test_other_job_names_have_no_queue(self, name: str) -> None:
        assert split_name(name) is None
        assert split_name(job_name("q", "p.f")) == ("q", "p.f")


class TestContext:
    def test_it_is_passed_to_tasks_that_take_it(self, tasks: Any, interface: Any, work: Work) -> None:
        result = tasks.in_context.enqueue("word")
        work()

        assert tasks.in_context.get_result(result.id).return_value == ["word", 1, result.id, "RUNNING"]
        assert isinstance(tasks.seen[0], interface.TaskContext)

    def test_also_to_async_ones(self, tasks: Any, work: Work) -> None:
        result = tasks.in_context_later.enqueue()
        work()

        assert tasks.in_context_later.get_result(result.id).return_value == 1

    def test_its_attributes_cannot_be_modified(self, tasks: Any, work: Work) -> None:
        finish(work, tasks.in_context.enqueue("word"))

        with pytest.raises(AttributeError):
            tasks.seen[0].task_result = None

    def test_it_counts_attempts_from_1(self, tasks: Any, work: Work, configure: Configure) -> None:
        configure(max_attempts=2)
        result = finish(work, tasks.fail_once.enqueue())

        assert (result.return_value, result.attempts) == (2, 2)


class TestResults:
    def test_a_task_that_succeeded_has_its_return_value(self, tasks: Any, work: Work, monque: Any) -> None:
        result = tasks.add.enqueue(40, 2)
        work()

        result = tasks.add.get_result(result.id)
        assert (result.status, result.return_value, result.is_finished) == ("SUCCESSFUL", 42, True)
        assert result.enqueued_at <= result.finished_at
        assert result.started_at == result.last_attempted_at <= result.finished_at
        assert result.worker_ids == [monque.instance_id]
        assert (result.attempts, result.errors) == (1, [])

    def test_a_value_of_none_is_told_from_no_value(self, tasks: Any, work: Work) -> None:
        result = tasks.add.enqueue([], [])
        with pytest.raises(ValueError, match="not finished"):
            _ = result.return_value
        work()

        result.refresh()
        assert result.return_value == []

    def test_a_task_that_runs_has_no_value_yet(self, tasks: Any, work: Work) -> None:
        result = finish(work, tasks.look_at_itself.enqueue())

        seen = {"status": "RUNNING", "finished": False, "attempts": 1, "why": "Task has not finished yet"}
        assert result.return_value == seen

    def test_another_thread_retrieves_a_result(self, tasks: Any, work: Work) -> None:
        result = finish(work, tasks.add.enqueue(1))

        with ThreadPoolExecutor(1) as other:
            assert other.submit(tasks.add.get_result, result.id).result().return_value == 1

    def test_an_async_task_runs_too(self, tasks: Any, work: Work) -> None:
        result = tasks.add_later.enqueue(1, 2)
        work()

        assert tasks.add_later.get_result(result.id).return_value == 3

    def test_a_result_does_not_update_unless_it_is_refreshed(self, tasks: Any, work: Work) -> None:
        result = tasks.add.enqueue(1)
        work()

        assert result.status == "READY"
        result.refresh()
        assert (result.status, result.return_value) == ("SUCCESSFUL", 1)

    def test_its_attributes_cannot_be_modified(self, tasks: Any) -> None:
        with pytest.raises(AttributeError):
            tasks.add.enqueue(1).status = "SUCCESSFUL"

    async def test_the_backend_has_async_variants(self, tasks: Any, interface: Any, backend: Any) -> None:
        result = await backend.aenqueue(tasks.add, [1], {})

        assert (await backend.aget_result(result.id)).args == [1]
        with pytest.raises(interface.TaskResultDoesNotExist):
            await backend.aget_result("0" * 24)

    async def test_arefresh_is_the_async_variant(self, tasks: Any) -> None:
        result = await tasks.add.aenqueue(1)
        await result.arefresh()

        assert result.status == "READY"

    def test_the_backend_returns_results_of_every_task(self, tasks: Any, interface: Any) -> None:
        result = tasks.add.enqueue(1)

        assert interface.default_task_backend.get_result(result.id).task.name == "add"

    def test_a_result_whose_job_was_deleted_cannot_be_refreshed(
        self, tasks: Any, interface: Any, monque: SyncMonque
    ) -> None:
        result = tasks.add.enqueue(1)
        monque.delete_job(result.id)

        with pytest.raises(interface.TaskResultDoesNotExist):
            result.refresh()

    @pytest.mark.parametrize("unknown", ["0" * 24, "nonsense", ""])
    def test_a_result_that_does_not_exist(self, tasks: Any, interface: Any, unknown: str) -> None:
        with pytest.raises(interface.TaskResultDoesNotExist):
            tasks.add.get_result(unknown)

    def test_a_job_that_is_no_task_is_no_result(self, tasks: Any, interface: Any, monque: SyncMonque) -> None:
        for name, data in (("send-email", None), ("default:plain", {"args": []})):
            with pytest.raises(interface.TaskResultDoesNotExist):
                tasks.add.get_result(str(monque.enqueue(name, data).id))

    def test_a_result_of_another_task_is_a_mismatch(self, tasks: Any, interface: Any) -> None:
        with pytest.raises(interface.TaskResultMismatch):
            tasks.echo.get_result(tasks.add.enqueue(1).id)

    async def test_in_async_code_too(self, tasks: Any, interface: Any) -> None:
        result = await tasks.add.aenqueue(1)

        with pytest.raises(interface.TaskResultMismatch):
            await tasks.echo.aget_result(result.id)

    def test_no_module_is_imported_because_a_stored_job_names_it(
        self, tasks: Any, interface: Any, monque: SyncMonque, work: Work
    ) -> None:
        import sys

        job = monque.enqueue("default:this.d", {"args": [], "kwargs": {}})
        work()

        with pytest.raises(interface.TaskResultMismatch, match=r"this\.d"):
            interface.default_task_backend.get_result(str(job.id))
        assert "this" not in sys.modules

    def test_a_value_that_is_no_json_is_an_error(self, tasks: Any, work: Work) -> None:
        result = tasks.unspeakable.enqueue()
        work()

        result = tasks.unspeakable.get_result(result.id)
        assert (result.status, result.errors[0].exception_class) == ("FAILED", TypeError)

    @pytest.mark.parametrize("value", [2**64, "\ud800", {"a\0b": 1}], ids=ascii_of)
    def test_a_value_that_mongodb_cannot_hold_is_an_error(self, tasks: Any, work: Work, value: Any) -> None:
        tasks.returned.append(value)

        result = finish(work, tasks.give_back.enqueue())
        assert result.status == "FAILED"
        assert issubclass(result.errors[-1].exception_class, Exception)

    def test_a_value_that_is_too_large_to_be_stored_is_an_error(self, tasks: Any, work: Work) -> None:
        result = tasks.large.enqueue()
        work()

        result = tasks.large.get_result(result.id)
        assert result.status == "FAILED"
        assert "max_result_size" in result.errors[0].traceback


class TestErrors:
    def test_a_task_that_failed_has_its_error_and_traceback(self, tasks: Any, work: Work) -> None:
        result = tasks.fail.enqueue("no money")
        work()

        result = tasks.fail.get_result(result.id)
        assert (result.status, result.is_finished, result.attempts) == ("FAILED", True, 1)
        (error,) = result.errors
        assert error.exception_class is tasks.CardDeclinedError
        assert error.traceback.startswith("Traceback (most recent call last):\n  File ")
        assert "raise CardDeclinedError(message)" in error.traceback
        assert "no money" in error.traceback
        assert result.finished_at >= result.last_attempted_at
        with pytest.raises(ValueError, match="failed"):
            _ = result.return_value

    def test_arguments_that_do_not_fit_are_an_error_of_running_it(self, tasks: Any, work: Work) -> None:
        result = finish(work, tasks.add.enqueue(nobody="knows it"))

        assert (result.status, result.errors[0].exception_class) == ("FAILED", TypeError)
        assert "unexpected keyword argument 'nobody'" in result.errors[0].traceback

    def test_an_async_one_too(self, tasks: Any, work: Work) -> None:
        result = tasks.fail_later.enqueue()
        work()

        (error,) = tasks.fail_later.get_result(result.id).errors
        assert error.exception_class is ValueError
        assert "later" in error.traceback

    def test_it_is_tried_once_unless_the_settings_say_more(
        self, tasks: Any, work: Work, configure: Any
    ) -> None:
        configure(max_attempts=3)
        result = finish(work, tasks.fail.enqueue("never"))

        assert (result.status, result.attempts, len(result.errors)) == ("FAILED", 3, 3)
        assert result.started_at < result.last_attempted_at

    def test_one_that_is_tried_again_is_ready(self, tasks: Any, work: Work, configure: Any) -> None:
        configure(max_attempts=3, base_retry_interval=timedelta(hours=1))
        result = tasks.fail.enqueue("for now")
        work()

        result = tasks.fail.get_result(result.id)
        assert (result.status, len(result.errors), result.finished_at) == ("READY", 1, None)

    def test_a_task_whose_process_died_has_that_error(
        self, tasks: Any, monque: SyncMonque, backend: Any
    ) -> None:
        from dataclasses import replace

        from monque import Attempt, ProcessDiedError
        from monque.django.results import result_of

        result = tasks.add.enqueue(1)
        job = monque.get_job(result.id)
        lost = Attempt(
            number=1,
            instance="w",
            started_at=None,
            finished_at=None,
            outcome="lost",
            error="ProcessDiedError",
            message="it died",
        )

        (error,) = result_of("default", replace(job, history=(lost,))).errors
        assert error.exception_class is ProcessDiedError
        assert error.traceback == "ProcessDiedError: it died"

    def test_a_cancelled_task_has_failed(self, tasks: Any, monque: SyncMonque, work: Work) -> None:
        by_operator, by_itself = tasks.add.enqueue(1), tasks.not_needed.enqueue()
        monque.cancel_job(by_operator.id, reason="wrong customer")
        work()

        by_operator.refresh()
        by_itself.refresh()
        assert (by_operator.status, by_itself.status) == ("FAILED", "FAILED")
        assert "wrong customer" in by_operator.errors[-1].traceback
        assert "nobody wants it" in by_itself.errors[-1].traceback


class TestSignals:
    @pytest.fixture
    def sent(self, interface: Any) -> Any:
        sent: list[tuple[str, Any, Any]] = []
        receivers = []
        for name in ("task_enqueued", "task_started", "task_finished"):

            def receive(sender: Any, task_result: Any, name: str = name, **_: Any) -> None:
                sent.append((name, sender, task_result))

            receivers.append(receive)
            getattr(interface, name).connect(receive, weak=False)
        yield sent
        for name, receive in zip(("task_enqueued", "task_started", "task_finished"), receivers, strict=True):
            getattr(interface, name).disconnect(receive)

    @pytest.mark.parametrize("name", ["add", "add_later"])
    def test_each_is_sent_once_with_the_backend_class_and_the_result(
        self, tasks: Any, work: Work, sent: Any, backend: Any, name: str
    ) -> None:
        result = getattr(tasks, name).enqueue(1, 2)
        work()

        assert [(signal, each.id, each.status) for signal, _, each in sent] == [
            ("task_enqueued", result.id, "READY"),
            ("task_started", result.id, "RUNNING"),
            ("task_finished", result.id, "SUCCESSFUL"),
        ]
        assert {sender for _, sender, _ in sent} == {type(backend)}
        assert sent[-1][2].return_value == 3

    def test_a_failure_is_finished_with_its_errors_when_there_is_no_other_attempt(
        self, tasks: Any, work: Work, sent: Any, configure: Configure
    ) -> None:
        configure(max_attempts=2)
        finish(work, tasks.fail.enqueue("no"))

        assert [name for name, _, _ in sent] == ["task_enqueued", *["task_started"] * 2, "task_finished"]
        assert (sent[-1][2].status, len(sent[-1][2].errors)) == ("FAILED", 2)

    def test_with_a_commit_it_is_sent_after_the_commit(self, tasks: Any, sent: Any) -> None:
        from django.db import transaction

        with transaction.atomic():
            transaction.on_commit(partial(tasks.add.enqueue, 1))
            assert sent == []
        assert [name for name, _, _ in sent] == ["task_enqueued"]

    async def test_aenqueue_sends_it_too(self, tasks: Any, sent: Any) -> None:
        await tasks.add.aenqueue(1)

        assert [name for name, _, _ in sent] == ["task_enqueued"]

    def test_receivers_may_be_async(self, tasks: Any, interface: Any, work: Work) -> None:
        heard = []

        async def receive(task_result: Any, **_: Any) -> None:
            heard.append(task_result.status)

        signals = (interface.task_enqueued, interface.task_started, interface.task_finished)
        for signal in signals:
            signal.connect(receive)
        finish(work, tasks.add_later.enqueue(1, 2))
        for signal in signals:
            signal.disconnect(receive)

        assert heard == ["READY", "RUNNING", "SUCCESSFUL"]

    def test_an_error_of_a_receiver_changes_nothing(
        self, tasks: Any, interface: Any, work: Work, caplog: pytest.LogCaptureFixture
    ) -> None:
        def receive(**_: Any) -> None:
            raise ZeroDivisionError

        for signal in (interface.task_enqueued, interface.task_started, interface.task_finished):
            signal.connect(receive)
        result = tasks.add.enqueue(1)
        work()
        for signal in (interface.task_enqueued, interface.task_started, interface.task_finished):
            signal.disconnect(receive)

        assert tasks.add.get_result(result.id).return_value == 1
        assert "ZeroDivisionError" in caplog.text

    def test_a_receiver_can_use_the_orm(self, tasks: Any, interface: Any, work: Work) -> None:
        from django.contrib.auth import get_user_model

        counted = []

        def receive(**_: Any) -> None:
            counted.append(get_user_model().objects.count())

        interface.task_finished.connect(receive)
        tasks.add_later.enqueue(1, 2)
        work()
        interface.task_finished.disconnect(receive)

        assert len(counted) == 1


class TestRunning:
    def test_tasks_use_the_orm(self, tasks: Any, work: Work) -> None:
        results = [tasks.count_users.enqueue(), tasks.count_users_later.enqueue()]
        work()

        for result in results:
            result.refresh()
            assert isinstance(result.return_value, int), result.errors

    def test_stale_connections_are_closed_around_each_job(self, tasks: Any, work: Work) -> None:
        """With `CONN_MAX_AGE = 0`, the default, each is stale when the job has ended."""
        tasks.count_users.enqueue()
        work()

        (connection,) = tasks.seen
        assert connection.connection is None

    def test_no_connection_outlives_the_thread_of_an_async_task(
        self, tasks: Any, work: Work, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from django.conf import settings

        monkeypatch.setitem(settings.DATABASES["default"], "CONN_MAX_AGE", 3600)
        tasks.count_users_later.enqueue()
        work()

        (connection,) = tasks.seen
        assert connection.settings_dict["CONN_MAX_AGE"] == 3600
        assert connection.connection is None

    def test_a_task_enqueues_another(self, tasks: Any, work: Work) -> None:
        results = [tasks.enqueue_another.enqueue(), tasks.enqueue_another_later.enqueue()]
        work()

        for result in results:
            result.refresh()
            assert result.status == "SUCCESSFUL", result.errors
        work()
        assert sorted(tasks.seen) == [(1, 2), (3, 4)]

    def test_an_async_task_that_would_block_its_loop_is_told(self, tasks: Any, work: Work) -> None:
        result = tasks.enqueue_another_wrongly.enqueue()
        work()

        assert (
            "await task.aenqueue" in tasks.enqueue_another_wrongly.get_result(result.id).errors[0].traceback
        )

    def test_views_enqueue_in_both_ways(self, tasks: Any, work: Work) -> None:
        from django.test import Client

        ids = [Client().get(path).content.decode() for path in ("/enqueue", "/aenqueue")]
        work()

        assert [tasks.add.get_result(each).return_value for each in ids] == [5, 5]
