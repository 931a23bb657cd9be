"""The dashboard in a Flask application: its prefix, its login, its stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest
from flask import Flask, abort, session

from monque import ConfigurationError, JobStatus
from monque.flask import FlaskMonque
from monque.web import Access, BasicAuth
from support.web import KEY, basic

WITH_KEY = {"authorization": f"Bearer {KEY}"}
MakeApp = Callable[..., Flask]


def login_required(view: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(view)
    def guarded(**arguments: Any) -> Any:
        if "user" not in session:
            abort(401)
        return view(**arguments)

    return guarded


def user() -> str | None:
    return session.get("user")


def test_a_login_of_the_application_stands_before_pages_and_api(
    monque: FlaskMonque, make_app: MakeApp
) -> None:
    app, seen = make_app(SECRET_KEY="of this test"), set()

    def authorize(access: Access) -> bool:
        seen.add(access.actor.name)
        return True

    monque.init_dashboard(app, decorators=[login_required], actor=user, authorize=authorize)
    client = app.test_client()
    for path in ("", "/", "/api/v1/jobs", "/jobs", "/openapi.json", "/api/ops/v1/stream"):
        assert client.get(f"/monque{path}").status_code == 401
    with client.session_transaction() as known:
        known["user"] = "ada"
    assert client.get("/monque/api/v1/jobs").get_json()["jobs"] == []
    assert client.get("/monque/openapi.json").get_json()["servers"] == [{"url": "/monque"}]
    assert client.get("/monque").headers["location"] == "./monque/"
    page = client.get("/monque/")
    assert page.status_code == 200
    assert "content-security-policy" in page.headers
    assert client.get("/monque/jobs").status_code == 200
    with app.app_context():
        stored = monque.monque.enqueue("work")
        cancelled = client.post(f"/monque/api/v1/jobs/{stored.id}/actions/cancel", json={})
        assert cancelled.status_code == 200, cancelled.text
        found = monque.monque.get_job(stored.id)
        assert found is not None
        assert found.status is JobStatus.CANCELLED
    assert seen == {"ada"}


def test_the_stream_comes_as_it_is_sent_and_ends_with_its_client(
    monque: FlaskMonque, make_app: MakeApp
) -> None:
    app = make_app()
    monque.init_dashboard(app)
    answer = app.test_client().get("/monque/api/ops/v1/stream", headers=WITH_KEY)
    assert answer.mimetype == "text/event-stream"
    parts = answer.iter_encoded()
    text = b""
    while b"event: snapshot" not in text:
        text += next(parts)
    assert text.startswith(b"retry: 2000\nevent: hello")
    answer.close()
    app.extensions["monque_dashboard"].close()  # it has nothing to wait for


def test_below_the_prefix_of_a_proxy(monque: FlaskMonque, make_app: MakeApp) -> None:
    app = make_app()
    monque.init_dashboard(app, "/ops", auth=BasicAuth({"ada": "of this test"}))
    client = app.test_client()
    headers = basic("ada", "of this test")
    answer = client.get("/ops/openapi.json", headers=headers, environ_overrides={"SCRIPT_NAME": "/proxy"})
    assert answer.get_json()["servers"] == [{"url": "/proxy/ops"}]
    assert client.get("/ops/api/v1/jobs").status_code == 401


def test_without_a_login_only_this_machine_is_let_in_with_the_key(
    monque: FlaskMonque, make_app: MakeApp
) -> None:
    app = make_app()
    monque.init_dashboard(app)
    client = app.test_client()
    jobs = "/monque/api/v1/jobs"
    assert client.get(jobs).status_code == 403
    elsewhere = {"REMOTE_ADDR": "192.0.2.7"}
    assert client.get(jobs, headers=WITH_KEY, environ_overrides=elsewhere).status_code == 403
    assert client.get(jobs, headers=WITH_KEY).status_code == 200

    entered = client.get(f"/monque/?key={KEY}")
    assert (entered.status_code, entered.headers["location"]) == (303, "./")
    assert client.get(jobs).status_code == 200


def test_a_body_that_is_too_large_is_not_read(monque: FlaskMonque, make_app: MakeApp) -> None:
    app = make_app()
    monque.init_dashboard(app)
    answer = app.test_client().post("/monque/api/ops/v1/jobs", data=b"x" * (2**24 + 1))
    assert answer.status_code == 413


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"path": "monque"}, "must be like '/monque'"),
        ({"path": "/<name>"}, "must be like '/monque'"),
        ({"root_path": "/ops"}, "knows where it is mounted"),
    ],
)
def test_refused_arguments(
    monque: FlaskMonque, make_app: MakeApp, arguments: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        monque.init_dashboard(make_app(), **arguments)


def test_a_second_dashboard_is_refused(monque: FlaskMonque, make_app: MakeApp) -> None:
    app = make_app()
    monque.init_dashboard(app)
    with pytest.raises(ConfigurationError, match="has a dashboard already"):
        monque.init_dashboard(app, "/other")


def test_nobody_is_not_let_in(monque: FlaskMonque, make_app: MakeApp) -> None:
    app = make_app()
    monque.init_dashboard(app, actor=lambda: None)
    assert app.test_client().get("/monque/api/v1/jobs").status_code == 401


def test_somebody_without_a_name_is_not_let_in(monque: FlaskMonque, make_app: MakeApp) -> None:
    app = make_app()
    monque.init_dashboard(app, actor=lambda: "")
    answer = app.test_client().get("/monque/api/ops/v1/me")
    assert answer.status_code == 401
    assert "an actor's name must be" in answer.get_json()["detail"]


def test_an_app_without_a_monque(monque: FlaskMonque) -> None:
    with pytest.raises(ConfigurationError, match="has no Monque"):
        monque.init_dashboard(Flask("bare"))
