"""The extension: an application that stores jobs, and handlers that run in its context."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from flask import Blueprint, Flask, current_app, g
from pymongo import MongoClient

from monque import ConfigurationError, Job, JobStatus, Options, SyncMonque, WorkerRegistrationError
from monque.flask import FlaskMonque
from support.hosted import extension, flask_process

MakeApp = Callable[..., Flask]


def ended(monque: FlaskMonque, job: Job[Any]) -> Job[Any]:
    """Let the jobs of the current application run; this one as it is then."""
    monque.monque.run_until_idle()
    found = monque.monque.get_job(job.id)
    assert found is not None
    return found


def test_a_view_stores_a_job_whose_handler_has_an_application_context(
    monque: FlaskMonque, make_app: MakeApp
) -> None:
    """The jobs are declared in a blueprint, imported after `init_app`."""
    app = make_app()
    views = Blueprint("views", __name__)

    @monque.job("send-email", store_result=True)
    def send_email(job: Job[str]) -> str:
        assert threading.current_thread() is not threading.main_thread()
        return f"{current_app.name} sends to {job.data}"

    @views.post("/sign-up/<address>")
    def sign_up(address: str) -> dict[str, str]:
        return {"job": str(send_email.enqueue(address, unique_key=address).id)}

    @views.get("/jobs/<job_id>")
    def show(job_id: str) -> dict[str, Any]:
        found = monque.monque.get_job(job_id)
        return {"status": found.status, "result": found.result} if found else {}

    app.register_blueprint(views)
    client = app.test_client()
    job_id = client.post("/sign-up/ada@example.org").get_json()["job"]
    with app.app_context():
        monque.monque.run_until_idle()
    assert client.get(f"/jobs/{job_id}").get_json() == {
        "status": "completed",
        "result": "shop sends to ada@example.org",
    }


def test_each_run_has_a_context_of_its_own_that_is_torn_down(monque: FlaskMonque, make_app: MakeApp) -> None:
    app, log = make_app(), []

    @app.teardown_appcontext
    def tear_down(error: BaseException | None) -> None:
        log.append((g.pop("number", None), type(error)))

    @monque.job("work")
    def work(job: Job[int]) -> None:
        assert "number" not in g
        g.number = job.data
        if job.data == 2:
            raise ValueError("a bug")

    @monque.job("work-later")
    async def work_later(job: Job[int]) -> None:
        assert current_app.name == "shop"
        g.number = job.data

    with app.app_context():
        jobs = [work.enqueue(1), work.enqueue(2), work_later.enqueue(3)]
        done = [ended(monque, job) for job in jobs]
    assert [job.status for job in done] == [JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.COMPLETED]
    assert done[1].fail_reason == "ValueError: a bug"
    torn_down = {number: kind for number, kind in log if number is not None}
    assert torn_down == {1: type(None), 2: ValueError, 3: type(None)}


def test_a_result_has_the_type_that_the_handler_names(monque: FlaskMonque, make_app: MakeApp) -> None:
    @monque.job("count", store_result=True)
    def count(job: Job[str]) -> tuple[str, int]:
        return job.data, len(job.data)

    with make_app().app_context():
        stored = count.enqueue("Ada")
        monque.monque.run_until_idle()
        assert monque.monque.result_of(stored) == ("Ada", 3)


def test_several_apps_have_a_monque_each(monque: FlaskMonque, make_app: MakeApp) -> None:
    @monque.job("work", store_result=True)
    def work(job: Job[None]) -> str:
        return current_app.name

    apps = [make_app(name, MONQUE_OPTIONS={"collection": name, "trends": None}) for name in ("one", "two")]
    for app in apps:
        with app.app_context():
            stored = work.enqueue()
            assert monque.monque.options.collection == app.name
    for app in apps:
        with app.app_context():
            monque.monque.run_until_idle()
            [job] = monque.monque.list_jobs()
            assert (job.status, job.result) == (JobStatus.COMPLETED, app.name)
    assert stored.name == "work"


def test_recurring_jobs_are_scheduled_when_a_worker_starts(monque: FlaskMonque, make_app: MakeApp) -> None:
    @monque.cron(timedelta(minutes=5), jitter=timedelta(seconds=3), max_attempts=2)
    def sweep(job: Job[None]) -> None: ...

    app = make_app()
    with app.app_context():
        sweep.enqueue()
        assert monque.monque.list_schedules() == []
        monque.monque.run_until_idle()
        [schedule] = monque.monque.list_schedules()
    assert (schedule.name, schedule.every) == ("sweep", timedelta(minutes=5))


def test_a_client_of_the_application_takes_jobs_into_its_transactions(monque: FlaskMonque, uri: str) -> None:
    app = Flask("shop")
    with MongoClient(uri) as client:
        monque.init_app(app, database=client)
        with app.app_context():
            monque.monque.open()
            with client.start_session() as session, session.start_transaction():
                monque.monque.enqueue("work", session=session)
                session.abort_transaction()
            assert monque.monque.count_jobs() == 0
            monque.monque.close()


def test_what_is_not_initialised_says_so(monque: FlaskMonque, make_app: MakeApp, uri: str) -> None:
    @monque.job("work")
    def work(job: Job[None]) -> None: ...

    with pytest.raises(ConfigurationError, match="there is no application context"):
        work.enqueue()
    with (
        Flask("bare").app_context(),
        pytest.raises(ConfigurationError, match="'bare' has no Monque; call init"),
    ):
        work.enqueue()
    app = make_app()
    with app.app_context(), pytest.raises(ConfigurationError, match="the Monque of another FlaskMonque"):
        _ = FlaskMonque().monque
    with pytest.raises(ConfigurationError, match="has a Monque already"):
        monque.init_app(app)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"pol_interval": 5}, r"no option 'pol_interval'; did you mean 'poll_interval'\?"),
        ({"x": 5}, "MONQUE_OPTIONS: there is no option 'x'; there are .*poll_interval"),
        ({"worker_concurrency": 0}, "worker_concurrency"),
        ("fast", "MONQUE_OPTIONS must be an Options"),
    ],
)
def test_wrong_options_are_named(monque: FlaskMonque, options: Any, sentence: str) -> None:
    app = Flask("shop")
    app.config["MONQUE_OPTIONS"] = options
    with pytest.raises(ConfigurationError, match=sentence):
        monque.init_app(app)


def test_the_environment_can_configure_it(monque: FlaskMonque, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASK_MONQUE_URI", "mongodb://localhost:1/shop")
    monkeypatch.setenv("FLASK_MONQUE_OPTIONS__worker_concurrency", "3")
    app = Flask("shop")
    app.config.from_prefixed_env()
    monque.init_app(app)
    with app.app_context():
        assert monque.monque.options == Options(worker_concurrency=3)


def test_refused_declarations(monque: FlaskMonque) -> None:
    def handle(job: Job[None]) -> None: ...

    monque.job("work")(handle)
    with pytest.raises(ConfigurationError, match=r"'work' is declared twice: .*handle and .*handle"):
        monque.job("work")(handle)
    with pytest.raises(ConfigurationError, match="job takes a name"):
        monque.job(handle)
    with pytest.raises(ConfigurationError, match="expires does not apply to a schedule"):
        monque.cron("@daily", expires=timedelta(hours=1))
    with pytest.raises(ConfigurationError, match="cron an expression"):
        monque.cron(5)
    with pytest.raises(WorkerRegistrationError):
        monque.job("nothing")(lambda: None)


def test_the_commands_of_monque_are_commands_of_flask(
    monque: FlaskMonque, make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MONQUE_APP", "nowhere:monque")  # the command is of this app, whatever that says
    app = make_app()
    with app.app_context():
        monque.monque.enqueue("work", "Ada")
        monque.monque.close()
    runner = app.test_cli_runner()
    shown = runner.invoke(args=["monque", "stats", "--json"])
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.output)["pending"] == 1
    listed = runner.invoke(args=["monque", "--help"]).output
    assert "worker" in listed
    assert "demo" not in listed


def test_a_job_runs_in_a_child_process(uri: str) -> None:
    app = Flask("shop")
    app.config.update(MONQUE_URI=uri, MONQUE_OPTIONS={"trends": None, "register": False})
    extension.init_app(app)
    with app.app_context():
        done = ended(extension, flask_process.enqueue())
        extension.monque.close()
    assert done.result not in (None, os.getpid())


def test_a_job_can_be_called_by_hand(monque: FlaskMonque, make_app: MakeApp) -> None:
    @monque.job("add")
    def add(job: Job[int]) -> int:
        return job.data + 1

    with make_app().app_context():
        assert isinstance(monque.monque, SyncMonque)
        assert add(add.enqueue(1)) == 2
