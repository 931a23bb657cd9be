"""As `calls.py`, for `monque.django`."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

from pymongo.client_session import ClientSession

from monque import Job, Monque, Retry, SyncMonque
from monque.django import (
    MonqueBackend,
    MonqueTask,
    dashboard_application,
    get_monque,
    make_monque,
    session_of,
)

monque = get_monque()
assert_type(monque, SyncMonque)
assert_type(get_monque("other"), SyncMonque)
assert_type(make_monque(release="1.2"), Monque)
assert_type(session_of("default"), ClientSession | None)


@monque.worker("rebuild-index")
def rebuild_index(job: Job[str]) -> None: ...


rebuild_index.enqueue("books", session=session_of())
rebuild_index.enqueue(5)  # type: ignore[arg-type]


def add(left: int, right: int) -> int:
    return left + right


MonqueTask(func=add, max_attempts=3, retry=Retry(3), timeout=timedelta(minutes=1), concurrency=2)
MonqueBackend.supports_get_result = True


async def django_application(scope: object, receive: object, send: object) -> None: ...


application = dashboard_application(django_application, "/monque", read_only=True)
dashboard_application(django_application, user_test=lambda user: user.is_superuser, login_url=None)
dashboard_application(django_application, 5)  # type: ignore[arg-type]
