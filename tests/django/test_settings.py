"""The Monque of the settings: options that are wrong, one instance a process, and plain workers."""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from typing import Any

import pytest

from monque import ConfigurationError, Job, Monque, Options, Retention, SyncMonque

from .conftest import Configure, Work


@pytest.fixture
def check(configure: Configure) -> Any:
    """What `manage.py check` says of these settings."""

    def check(queues: Any = ("default", "emails"), **options: Any) -> list[str]:
        from django.core.checks import run_checks

        configure(queues, **options)
        return [f"{message.id} {message.msg}" for message in run_checks()]

    return check


def test_good_settings_are_not_complained_about(check: Any) -> None:
    good = check(max_attempts=3, retention=Retention(completed=timedelta(days=1)), worker_concurrency=2)

    assert good == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"url": "mongodb://localhost"}, ["no option 'url'", "'uri'"]),
        ({"colection": "jobs"}, ["no option 'colection'", "'collection'"]),
        ({"nonsense": 1}, ["no option 'nonsense'", "max_attempts"]),
        ({"uri": 5}, ["uri must be text"]),
        ({"uri": "secret"}, ["uri must be text"]),
        ({"max_attempts": 0}, ["max_attempts must be a whole number", "0"]),
        ({"poll_interval": 5}, ["poll_interval must be a timedelta"]),
        ({"heartbeat_tolerance": timedelta(seconds=1)}, ["heartbeat_tolerance must be at least"]),
        ({"database": "unknown"}, ["an alias of DATABASES (default)", "'unknown'"]),
        ({"database": "default"}, ["django-mongodb-backend", "sqlite3"]),
        ({"uri": "mongodb://localhost", "database": "default"}, ["give one"]),
    ],
)
def test_a_bad_option_is_named(check: Any, options: dict[str, Any], words: list[str]) -> None:
    found = check(**options)

    assert found[0].startswith("monque.E001")
    for word in words:
        assert any(word in each for each in found)
    assert not any("secret" in each for each in found)  # a uri may hold a password


def test_options_that_are_no_dict_are_told(project: None) -> None:
    from django.core.checks import run_checks
    from django.test import override_settings

    with override_settings(TASKS={"default": {"BACKEND": "monque.django.MonqueBackend", "OPTIONS": 5}}):
        assert 'TASKS["default"]["OPTIONS"] must be a dict, got 5' in {each.msg for each in run_checks()}


def test_so_is_a_bad_queue(check: Any) -> None:
    assert "E002" in check(queues=["two words"])[0]


def test_a_project_in_production_is_warned_if_it_says_nothing_about_the_database(check: Any) -> None:
    assert "monque.W001" in check(uri=None)[0]


def test_a_project_without_the_app_is_warned(check: Any) -> None:
    from django.conf import settings
    from django.test import override_settings

    others = [app for app in settings.INSTALLED_APPS if app != "monque.django"]
    with override_settings(INSTALLED_APPS=others):
        found = check()
    assert any(each.startswith("monque.W002") and '"monque.django"' in each for each in found), found


def test_so_is_one_without_the_app_of_its_tasks(check: Any) -> None:
    from django.conf import settings
    from django.test import override_settings

    if "django_tasks" not in settings.INSTALLED_APPS:
        pytest.skip("this Django has tasks of its own")
    others = [app for app in settings.INSTALLED_APPS if app != "django_tasks"]
    with override_settings(INSTALLED_APPS=others):
        found = check()
    assert any(each.startswith("monque.W003") and '"django_tasks"' in each for each in found), found


def test_a_bad_option_is_an_error_where_it_is_used(configure: Configure) -> None:
    from monque.django import get_monque

    configure(max_attempts=0)

    with pytest.raises(ConfigurationError, match="max_attempts"):
        get_monque()


def test_an_alias_that_is_not_there_is_an_error(configure: Configure) -> None:
    from monque.django import get_monque

    configure()

    with pytest.raises(ConfigurationError, match=r"no alias 'other' \(it has 'default'\)"):
        get_monque("other")


def test_there_is_one_monque_a_process_with_the_options_of_the_settings(configure: Configure) -> None:
    from monque.django import get_monque

    configure(collection="my_jobs", worker_concurrency=3)
    found: list[SyncMonque] = []
    threads = [threading.Thread(target=lambda: found.append(get_monque())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({id(each) for each in found}) == 1
    assert found[0].options.collection == "my_jobs"
    assert found[0].options.worker_concurrency == 3
    assert found[0].options.instance_concurrency == 10


def test_options_that_are_not_given_are_those_of_monque(configure: Configure) -> None:
    from monque.django.conf import read

    assert read("default", {}).options == Options(instance_concurrency=10)


async def test_make_monque_makes_one_for_an_event_loop(configure: Configure) -> None:
    from monque.django import make_monque

    configure(collection="my_jobs")
    async with make_monque(release="1.2") as monque:
        assert isinstance(monque, Monque)
        assert (monque.options.collection, monque.options.release) == ("my_jobs", "1.2")
        assert await monque.estimated_count() == 0


def test_a_plain_worker_runs_beside_the_tasks_with_fresh_connections(monque: SyncMonque, work: Work) -> None:
    from django.contrib.auth import get_user_model
    from django.db import connections, transaction

    from support.djangoapp import tasks

    seen: list[Any] = []

    @monque.worker("count")
    def count(job: Job[int]) -> None:
        seen.append((job.data, get_user_model().objects.count(), connections["default"]))

    @monque.worker("count-later")
    async def count_later(job: Job[int]) -> None:
        seen.append((job.data, await get_user_model().objects.acount(), None))

    class Counting:
        async def __call__(self, job: Job[int]) -> None:
            await count_later(job)

    by_object = monque.worker("count-by-an-object", Counting())
    with transaction.atomic():
        transaction.on_commit(lambda: count.enqueue(7))
    count_later.enqueue(8)
    by_object.enqueue(9)
    result = tasks.add.enqueue(1)
    work()
    work()  # preparing it twice changes nothing

    result.refresh()
    assert result.is_finished
    assert sorted(data for data, _, _ in seen) == [7, 8, 9]
    assert [connection.connection for _, _, connection in seen if connection] == [None]


def test_a_plain_function_may_use_the_orm_as_a_step(monque: SyncMonque, work: Work) -> None:
    """In the handler itself, which runs on an event loop, Django refuses that."""
    from django.contrib.auth import get_user_model
    from django.db import transaction

    def sign_up(name: str) -> int:
        with transaction.atomic():
            found: int = get_user_model().objects.create_user(name, password="x").pk
        return found

    @monque.worker("sign-up", store_result=True)
    async def handle(job: Job[str]) -> int:
        user = await job.step("sign-up", sign_up, job.data)
        await job.sleep("nap", timedelta(0))
        return user

    job = handle.enqueue("stepper")
    work()

    assert get_user_model().objects.get(username="stepper").pk == monque.result_of(job)
    get_user_model().objects.all().delete()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_after_a_fork_it_starts_afresh(monque: SyncMonque) -> None:
    """As under gunicorn with preload: the parent has enqueued before the workers were forked."""
    from support.djangoapp import tasks

    tasks.add.enqueue(1)
    pid = os.fork()
    if not pid:
        code = 1
        try:
            tasks.add.enqueue(2)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)

    assert status == 0
    assert monque.estimated_count() == 2


def test_overridden_settings_close_what_was_open(monque: SyncMonque, configure: Configure) -> None:
    from monque import NotOpenError
    from monque.django import get_monque

    monque.estimated_count()
    configure(collection="others")

    assert get_monque() is not monque
    with pytest.raises(NotOpenError):
        monque.estimated_count()
