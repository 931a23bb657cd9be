"""Tasks that tests enqueue. They note what they do in `seen`."""

import threading
import time
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth import get_user_model
from django.db import connections

from monque import Cancel
from support.djangoapp.interface import task

seen: list[Any] = []
returned: list[Any] = []
"""What `give_back` returns: tests put it there, as not all of it could be an argument."""


class CardDeclinedError(Exception):
    """An error of the project."""


@task
def add(left: Any, right: Any = 0) -> Any:
    seen.append((left, right))
    return left + right


@task()
async def add_later(left: int, right: int) -> int:
    seen.append(threading.current_thread().name)
    return left + right


@task
def echo(*args: Any, **kwargs: Any) -> Any:
    seen.append((args, kwargs))
    return [list(args), kwargs]


@task(takes_context=True)
def in_context(context: Any, word: str) -> Any:
    seen.append(context)
    return [word, context.attempt, context.task_result.id, context.task_result.status]


@task(takes_context=True)
def look_at_itself(context: Any) -> Any:
    result = look_at_itself.get_result(context.task_result.id)
    try:
        why = result.return_value
    except ValueError as error:
        why = str(error)
    return {"status": result.status, "finished": result.is_finished, "attempts": result.attempts, "why": why}


@task(takes_context=True)
async def in_context_later(context: Any) -> int:
    return int(context.attempt)


@task
def fail(message: str) -> None:
    raise CardDeclinedError(message)


@task
async def fail_later() -> None:
    raise ValueError("later")


@task(takes_context=True)
def fail_once(context: Any) -> int:
    if context.attempt == 1:
        raise ValueError("the first time")
    return int(context.attempt)


@task
def double_dictionary(key: Any) -> Any:
    return {key: key * 2}


@task
def unspeakable() -> Any:
    return object()


@task
def give_back() -> Any:
    return returned.pop()


@task
def large() -> str:
    return "x" * 70_000


@task
def not_needed() -> None:
    raise Cancel("nobody wants it")


@task
def count_users() -> int:
    seen.append(connections["default"])
    return int(get_user_model().objects.count())


@task
async def count_users_later() -> int:
    seen.append(await sync_to_async(lambda: connections["default"])())
    return int(await get_user_model().objects.acount())


@task
def enqueue_another() -> str:
    return str(add.enqueue(1, 2).id)


@task
async def enqueue_another_later() -> str:
    return str((await add.aenqueue(3, 4)).id)


@task
async def enqueue_another_wrongly() -> str:
    return str(add.enqueue(3, 4).id)


@task(queue_name="emails", priority=50)
def send(address: str) -> str:
    seen.append(address)
    return address


def plain(job: Any) -> None:
    """No task."""


@task
def wait_for_file(started: str, going_on: str) -> str:
    Path(started).touch()
    deadline = time.monotonic() + 60
    while not Path(going_on).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return "gone on"
