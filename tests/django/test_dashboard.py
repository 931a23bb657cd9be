"""The dashboard in Django's ASGI application, and the page of the admin."""

from __future__ import annotations

from collections.abc import AsyncIterator
from io import StringIO
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from monque import ConfigurationError
from support.web import client_of

from .conftest import Configure

PAGE = {"accept": "text/html,*/*;q=0.8"}


@pytest.fixture
async def users(project: None) -> AsyncIterator[dict[str, str]]:
    """Session cookies of a member of the staff, of a customer, and of a member who has left."""
    from django.contrib.auth import get_user_model
    from django.test import Client

    def log_in() -> dict[str, str]:
        cookies = {}
        for name, is_staff in (("staff", True), ("customer", False), ("former", True)):
            user = get_user_model().objects.create_user(name, password="x", is_staff=is_staff)
            client = Client()
            client.force_login(user)
            cookies[name] = f"sessionid={client.cookies['sessionid'].value}"
        get_user_model().objects.filter(username="former").update(is_active=False)
        return cookies

    yield await sync_to_async(log_in)()
    await get_user_model().objects.all().adelete()


@pytest.fixture
async def connect(configure: Configure) -> AsyncIterator[Any]:
    """A client of the project with a dashboard."""
    from contextlib import AsyncExitStack

    from django.core.asgi import get_asgi_application

    from monque.django import dashboard_application

    configure()
    async with AsyncExitStack() as stack:

        async def connect(path: str = "/monque", **options: Any) -> Any:
            application = dashboard_application(get_asgi_application(), path, **options)
            stack.push_async_callback(end, application)
            return await stack.enter_async_context(client_of(application))

        yield connect


async def end(application: Any) -> None:
    """What a server does when it stops."""
    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    sent = []

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await application({"type": "lifespan"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_django_answers_everything_else(connect: Any) -> None:
    client = await connect()

    assert (await client.get("/admin/")).status_code == 302
    assert (await client.get("/monquez/")).status_code == 404


async def test_members_of_the_staff_are_let_in(connect: Any, users: dict[str, str]) -> None:
    client = await connect()

    answer = await client.get("/monque/api/v1/jobs", headers={"cookie": users["staff"]})
    assert (answer.status_code, answer.json()["jobs"]) == (200, [])
    page = await client.get("/monque/", headers={"cookie": users["staff"], **PAGE})
    assert page.status_code in (200, 503)  # 503: the pages are not built


@pytest.mark.parametrize("who", ["customer", "former", "nobody"])
async def test_nobody_else_is(connect: Any, users: dict[str, str], who: str) -> None:
    client = await connect()
    cookie = {"cookie": users.get(who, "sessionid=forged")}

    assert (await client.get("/monque/api/v1/jobs", headers=cookie)).status_code == 401
    page = await client.get("/monque/jobs?name=a%20b", headers={**cookie, **PAGE})
    assert page.status_code == 302
    assert page.headers["location"] == "/admin/login/?next=/monque/jobs%3Fname%3Da%2520b"


async def test_the_name_of_the_user_is_in_the_audit_trail(connect: Any, users: dict[str, str]) -> None:
    from monque.django import get_monque

    client = await connect()
    job = await sync_to_async(get_monque().enqueue)("send-email")
    headers = {"cookie": users["staff"], "content-type": "application/json", "origin": "http://localhost"}

    answer = await client.post(f"/monque/api/v1/jobs/{job.id}/actions/cancel", headers=headers)

    assert answer.status_code == 200, answer.text
    trail = await sync_to_async(get_monque().audit)()
    assert [(entry.actor, entry.action) for entry in trail.entries] == [("staff", "cancel")]


async def test_a_test_of_ones_own_may_use_the_orm(connect: Any, users: dict[str, str]) -> None:
    client = await connect(
        user_test=lambda user: type(user).objects.filter(pk=user.pk, username="customer").exists(),
        login_url=None,
    )

    for who, status in (("customer", 200), ("staff", 401)):
        answer = await client.get("/monque/api/v1/jobs", headers={"cookie": users[who]})
        assert answer.status_code == status
    assert (await client.get("/monque/", headers=PAGE)).status_code == 401


async def test_a_password_that_was_changed_ends_the_session(connect: Any, users: dict[str, str]) -> None:
    from django.contrib.auth import get_user_model

    client = await connect()

    def change() -> None:
        user = get_user_model().objects.get(username="staff")
        user.set_password("another")
        user.save()

    await sync_to_async(change)()

    answer = await client.get("/monque/api/v1/jobs", headers={"cookie": users["staff"]})
    assert answer.status_code == 401


async def test_a_new_secret_key_does_not_end_it(connect: Any, users: dict[str, str]) -> None:
    """Django would replace the session then, and the browser would not get to know the new one."""
    from django.conf import settings
    from django.test import override_settings

    client = await connect()
    with override_settings(SECRET_KEY="a new one", SECRET_KEY_FALLBACKS=[settings.SECRET_KEY]):
        for _ in range(2):
            answer = await client.get("/monque/api/v1/jobs", headers={"cookie": users["staff"]})
            assert answer.status_code == 200


async def test_it_is_served_where_it_is_mounted(connect: Any, users: dict[str, str]) -> None:
    client = await connect("/ops/jobs", read_only=True)
    document = await client.get("/ops/jobs/openapi.json", headers={"cookie": users["staff"]})

    assert document.json()["servers"] == [{"url": "/ops/jobs"}]


@pytest.mark.parametrize("wrong", [{"path": "monque"}, {"path": "/monque/"}, {"root_path": "/x"}])
async def test_wrong_places_are_refused(connect: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        await connect(**wrong)


class TestAdmin:
    def test_the_index_has_the_page_for_the_staff(self, configure: Configure, admin: Any) -> None:
        from monque.django import get_monque

        configure()
        get_monque().enqueue("<b>hostile</b>")

        assert "/admin/monque/dashboard/" in admin.get("/admin/").content.decode()
        shown = admin.get("/admin/monque/dashboard/").content.decode()
        assert 'href="/monque/"' in shown
        assert "&lt;b&gt;hostile&lt;/b&gt;" in shown
        assert "<b>hostile" not in shown

    def test_nothing_can_be_added_or_changed(self, configure: Configure, admin: Any) -> None:
        configure()

        assert admin.get("/admin/monque/dashboard/add/").status_code == 403

    @pytest.mark.parametrize(("page", "status"), [("change", 302), ("history", 302), ("delete", 403)])
    def test_there_is_nothing_behind_the_page(
        self, configure: Configure, admin: Any, page: str, status: int
    ) -> None:
        configure()

        assert admin.get(f"/admin/monque/dashboard/1/{page}/").status_code == status

    @pytest.mark.parametrize("options", [{}, {"use_base_manager": True}])
    def test_dumpdata_does_not_look_for_a_table(self, project: None, options: dict[str, bool]) -> None:
        from django.core.management import call_command

        written = StringIO()
        call_command("dumpdata", "monque", stdout=written, **options)

        assert written.getvalue().strip() == "[]"

    def test_the_address_can_be_set(self, configure: Configure, admin: Any) -> None:
        from django.test import override_settings

        configure()
        with override_settings(MONQUE_DASHBOARD_URL="https://ops.example.org/jobs/"):
            shown = admin.get("/admin/monque/dashboard/").content.decode()

        assert 'href="https://ops.example.org/jobs/"' in shown

    def test_a_database_that_is_away_is_told_there(self, configure: Configure, admin: Any) -> None:
        configure(uri="mongodb://127.0.0.1:1/away?serverSelectionTimeoutMS=200")

        shown = admin.get("/admin/monque/dashboard/").content.decode()
        assert "cannot be read" in shown

    @pytest.fixture
    def admin(self, project: None) -> Any:
        from django.contrib.auth import get_user_model
        from django.test import Client

        user = get_user_model().objects.create_user("member", password="x", is_staff=True)
        client = Client()
        client.force_login(user)
        yield client
        user.delete()
