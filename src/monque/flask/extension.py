"""The extension: a Monque for each application that it is given to, and `flask monque`."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta, tzinfo
from typing import Any, Protocol, TypeVar, Unpack

import click
from flask import Flask, current_app, has_app_context
from flask.cli import ScriptInfo

from monque import ConfigurationError, Job, Options, SyncMonque, WorkerSettings
from monque._hosting.apps import Hosted, register_apps, unknown_option
from monque._hosting.declare import CronSettings, Declaration, declaration, recurring
from monque.cli.commands import group
from monque.flask.jobs import FlaskJob

T = TypeVar("T")

_KEY = "monque"


class Declare(Protocol):
    """A decorator: a function becomes a `FlaskJob`."""

    def __call__(self, function: Callable[[Job[T]], Any], /) -> FlaskJob[T]: ...


@dataclass(frozen=True, slots=True)
class AppState:
    """The state of an application, in `app.extensions["monque"]`."""

    extension: FlaskMonque
    monque: SyncMonque
    database: object
    """The database that its Monque was made on."""


class FlaskMonque:
    """A Monque for Flask. It belongs to no application until `init_app`, and may belong to several.

    The Monque of an application connects at its first use, in each process for itself: an application that
    gunicorn has loaded before it forks needs nothing more.

    Configuration of the application:

    - `MONQUE_URI`: the database, as `Monque` takes it; without it the environment variable of that name, and
      without that an embedded MongoDB on this machine
    - `MONQUE_OPTIONS`: an `Options`, or a mapping of its fields

    Args:
        app: The same as a call of `init_app`.

    Examples:
        >>> monque = FlaskMonque()
        >>> @monque.job("send-email")
        ... def send_email(job: Job[Email]) -> None:
        ...     current_app.logger.info("sending to %s", job.data.to)
        >>> def create_app() -> Flask:
        ...     app = Flask(__name__)
        ...     app.config["MONQUE_URI"] = "mongodb://localhost:27017/shop"
        ...     monque.init_app(app)
        ...     return app
    """

    def __init__(self, app: Flask | None = None) -> None:
        self._jobs: dict[str, FlaskJob[Any]] = {}
        self._apps: weakref.WeakSet[Flask] = weakref.WeakSet()
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask, *, database: object = None) -> None:
        """Give *app* a Monque; nothing is connected yet.

        Args:
            app: It has its configuration already.
            database: Used instead of `MONQUE_URI`: anything that `Monque` takes, such as your `MongoClient`.

        Raises:
            ConfigurationError: The configuration is wrong, or the application has a Monque already.
        """
        if _KEY in app.extensions:
            raise ConfigurationError("this app has a Monque already; call init_app once for each app")
        given = app.config.get("MONQUE_URI") if database is None else database
        monque = SyncMonque(given, options=_options(app.config.get("MONQUE_OPTIONS")))
        for job in self._jobs.values():
            job.register(app, monque)
        monque.on_start(lambda: self._schedule_all(monque))
        app.extensions[_KEY] = AppState(self, monque, given)
        app.cli.add_command(monque_commands())
        self._apps.add(app)
        _close_at_exit(monque)

    @property
    def monque(self) -> SyncMonque:
        """The Monque of the current application.

        Raises:
            ConfigurationError: There is no application context, or its application was not initialised.

        Examples:
            >>> monque.monque.get_job(job_id)
        """
        if not has_app_context():
            raise ConfigurationError(
                "there is no application context, so nobody knows whose jobs are meant; do this in a view, "
                "a job or a command, or in `with app.app_context():`"
            )
        return self._state_of(current_app._get_current_object()).monque  # type: ignore[attr-defined]  # a proxy

    def job(
        self, name: str, *, concurrency: int | None = None, **settings: Unpack[WorkerSettings]
    ) -> Declare:
        """Declare the handler of a job name, for all applications; each run has an application context.

        Args:
            name: The job name.
            concurrency: How many of these jobs run at once in a process.
            settings: How its jobs run: see `WorkerSettings`. With `mode="process"` there is no application
                in the child, and no context.

        Raises:
            ConfigurationError: A setting is wrong or unknown; the message names it.
            WorkerRegistrationError: It is no handler, or the name is taken.
        """
        return self._declare(declaration(name, concurrency, settings))

    def cron(
        self,
        expression: str | timedelta,
        name: str | None = None,
        *,
        timezone: str | tzinfo = "UTC",
        concurrency: int | None = None,
        **settings: Unpack[CronSettings],
    ) -> Declare:
        """As `job`, for a recurring job: it is scheduled when a worker starts.

        Args:
            expression: Five fields, a name such as @daily or @hourly, or an interval of at least a second.
            name: The job name; default: the name of the function.
            timezone: The IANA zone the fields are meant in, as a name or a `ZoneInfo`.
            concurrency: How many of these jobs run at once in a process.
            settings: When it runs and how its runs run: see `ScheduleSettings` and `WorkerSettings`.

        Raises:
            ConfigurationError: As in `job`; also for `expires`, which does not apply to a schedule.

        Examples:
            >>> @monque.cron("0 9 * * MON-FRI", timezone="Europe/Berlin")
            ... def morning_report(job: Job[None]) -> None: ...
        """
        return self._declare(recurring(expression, name, timezone, concurrency, settings))

    def init_dashboard(
        self,
        app: Flask,
        path: str = "/monque",
        *,
        decorators: Sequence[Callable[[Any], Any]] = (),
        actor: Callable[[], Any] | None = None,
        **options: Any,
    ) -> None:
        """Serve the dashboard of *app* below *path*. It needs `pymonque[web]`, and a server with threads.

        Without *decorators*, *actor* and `auth` only requests from this machine that have its user's key are
        let in, as `monque.web.dashboard` says. A live view keeps one thread of the server for as long as it
        is open.

        Args:
            app: One that `init_app` was called with.
            path: Where it is served.
            decorators: Put around its view, the last one outermost, as in `View.decorators`: what your login
                offers, such as `login_required`.
            actor: Called in the request; says who asks: a name or an `Actor`. None and an empty
                name are answered with 401.
            options: Anything that `monque.web.dashboard` takes, such as `auth` or `read_only`.

        Raises:
            ConfigurationError: The path or an option is wrong, or the application has no Monque.

        Examples:
            >>> monque.init_dashboard(app, decorators=[login_required], actor=lambda: current_user.name)
        """
        from monque.flask.dashboard import serve_dashboard

        state = self._state_of(app)
        serve_dashboard(
            app,
            path,
            database=state.database,
            options=state.monque.options,
            decorators=decorators,
            actor=actor,
            more=options,
        )

    def _state_of(self, app: Flask) -> AppState:
        state = app.extensions.get(_KEY)
        if not isinstance(state, AppState):
            raise ConfigurationError(f"the app {app.name!r} has no Monque; call init_app(app) first")
        if state.extension is not self:
            raise ConfigurationError(
                f"the app {app.name!r} has the Monque of another FlaskMonque(); make one, and import it"
            )
        return state

    def _declare(self, given: Declaration) -> Declare:
        def declare(function: Callable[[Job[T]], Any]) -> FlaskJob[T]:
            name = given.name_of(function)
            job = given.make(FlaskJob, name, function, alone=function, current=lambda: self.monque)
            return self._add(job)

        return declare

    def _add(self, job: FlaskJob[T]) -> FlaskJob[T]:
        other = self._jobs.get(job.name)
        if other is not None:
            raise ConfigurationError(
                f"{job.name!r} is declared twice: {_place(other)} and {_place(job)}; choose another name"
            )
        self._jobs[job.name] = job
        # Views that declare jobs are often imported after the app was initialised.
        for app in list(self._apps):
            job.register(app, self._state_of(app).monque)
        return job

    def _schedule_all(self, monque: SyncMonque) -> None:
        for job in list(self._jobs.values()):
            if job.cron is not None and monque.workers.serves(job.name):
                monque.schedule(job.cron, job, timezone=job.timezone, **job.schedule_settings)


def monque_of(app: Flask) -> SyncMonque:
    """The Monque of an application.

    Raises:
        ConfigurationError: It has none.
    """
    state = app.extensions.get(_KEY)
    if not isinstance(state, AppState):
        raise ConfigurationError(f"the app {app.name!r} has no Monque; call FlaskMonque().init_app(app)")
    return state.monque


def _options(given: object) -> Options:
    if given is None:
        return Options()
    if isinstance(given, Options):
        return given
    if not isinstance(given, Mapping):
        raise ConfigurationError(
            f"MONQUE_OPTIONS must be an Options() or a mapping of its fields, got {given!r}"
        )
    for problem in filter(None, map(unknown_option, given)):
        raise ConfigurationError(f"MONQUE_OPTIONS: {problem}")
    return Options(**given)


def _place(job: FlaskJob[Any]) -> str:
    return f"{job.handler.__module__}.{job.handler.__qualname__}"


def _close_at_exit(monque: SyncMonque) -> None:
    """Say good-bye to the server at the end of the process, without keeping *monque* alive until then."""
    reference = weakref.ref(monque)

    @atexit.register
    def close() -> None:
        if (still_there := reference()) is not None:
            # By now Python refuses new work for threads, with which an embedded server would be told to end.
            # It does so by itself when its last user is gone.
            with suppress(RuntimeError):
                still_there.close()


register_apps(Flask, lambda app: Hosted(monque=monque_of(app)))


def monque_commands() -> click.Group:
    """The group for an application."""
    return group(_use, "The jobs of this application: run, see and manage them.")


@click.pass_context
def _use(ctx: click.Context) -> None:
    """Say where the app is. Processes that a command starts have to find it as `flask` has found it."""
    found = ctx.find_object(ScriptInfo)
    if found is not None and found.app_import_path is not None:
        os.environ["FLASK_APP"] = found.app_import_path
    if found is not None and not has_app_context():  # the runner of a test, or a script of the application
        ctx.with_resource(found.load_app().app_context())
    os.environ["MONQUE_APP"] = f"{__name__}:app"


def app() -> Flask:
    """The current application; in a process that a command has started, the one of FLASK_APP."""
    if has_app_context():
        here: Flask = current_app._get_current_object()  # type: ignore[attr-defined]  # a proxy, typed as the app
        return here
    return ScriptInfo(app_import_path=os.environ.get("FLASK_APP")).load_app()
