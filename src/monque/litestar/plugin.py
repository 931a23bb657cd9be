"""The plugin: a Monque inside the life of a Litestar application."""

from __future__ import annotations

import functools
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from litestar import Litestar
from litestar.di import Provide
from litestar.plugins import CLIPlugin, InitPlugin

from monque import ConfigurationError, Monque, WorkerRegistrationError
from monque._hosting.apps import Hosted, closed_on_exit, register_apps
from monque._hosting.declare import Registered, rebound
from monque.litestar.dashboard import DashboardConfig, make_dashboard, mount
from monque.litestar.inject import make_plan, make_runner
from monque.litestar.jobs import AnyHandler, JobHandler

if TYPE_CHECKING:
    from click import Group
    from litestar.config.app import AppConfig

    MonqueDep: TypeAlias = Monque
else:
    try:
        from litestar.di import NamedDependency
    except ImportError:
        # An older Litestar, which takes any parameter for a dependency that has the name of one.
        MonqueDep = Monque
    else:
        MonqueDep = NamedDependency[Monque]
"""The annotation of a parameter `monque` that takes the Monque: short for `NamedDependency[Monque]`."""


class MonquePlugin(InitPlugin, CLIPlugin):
    """Let *monque* live as long as the application, and give it to route handlers.

    It opens after the application's own lifespan has begun, starts after the last `on_startup` hook, and is
    stopped gracefully before anything of the application ends. `litestar monque` is the command line of its
    jobs.

    Args:
        monque: On any connection.
        jobs: What `job` and `cron` made of functions.
        process_jobs: False for a producer: it stores and manages jobs and runs none. Its jobs are run by
            other processes: `litestar monque worker`.
        dependency_key: Route handlers and jobs with a parameter of this name get the Monque.
        dashboard: Serve the dashboard, too.

    Examples:
        >>> monque = Monque("mongodb://localhost:27017/shop")
        >>> app = Litestar([sign_up], plugins=[MonquePlugin(monque, jobs=[send_email])])
    """

    def __init__(
        self,
        monque: Monque,
        *,
        jobs: Iterable[AnyHandler] = (),
        process_jobs: bool = True,
        dependency_key: str = "monque",
        dashboard: DashboardConfig | None = None,
    ) -> None:
        if not isinstance(monque, Monque):
            raise ConfigurationError(
                f"MonquePlugin takes a Monque, such as Monque(your_database), got {monque!r}"
            )
        if dashboard is not None and not isinstance(dashboard, DashboardConfig):
            raise ConfigurationError(f"dashboard must be a DashboardConfig(), got {dashboard!r}")
        self.monque = monque
        self.jobs = _checked(jobs)
        self.process_jobs = process_jobs
        self._dependency_key = dependency_key
        self._dashboard = dashboard
        self._registered = Registered(monque)

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        """Join the application; Litestar calls this."""
        if self._dependency_key in app_config.dependencies:
            raise ConfigurationError(
                f"this application has a dependency {self._dependency_key!r} already; choose another "
                "MonquePlugin(dependency_key=...)"
            )
        app_config.dependencies[self._dependency_key] = Provide(self._provide, sync_to_thread=False)
        app_config.signature_namespace.setdefault("Monque", Monque)
        app_config.lifespan.append(self._open)
        app_config.on_startup.append(self._start)
        if self._dashboard is not None:
            self._include(self._dashboard, app_config)
        return app_config

    def on_cli_init(self, cli: Group) -> None:
        """Add `litestar monque`; Litestar calls this."""
        from monque.cli.commands import group

        def use(env: Any) -> None:
            os.environ["MONQUE_APP"] = env.app_path

        cli.add_command(group(use, "The jobs of this application: run, see and manage them."), "monque")

    @asynccontextmanager
    async def working(self, app: Litestar) -> AsyncIterator[Monque]:
        """The lifespan of *app* with its jobs processed in it, as `litestar monque worker` has it.

        Examples:
            >>> async with plugin.working(app) as monque:
            ...     await monque.run_until_idle()
        """
        self.process_jobs = True
        async with _lifespan(app):
            yield self.monque

    @asynccontextmanager
    async def idle(self, app: Litestar) -> AsyncIterator[Monque]:
        """The lifespan of *app* with its jobs registered and none of them processed."""
        self.process_jobs = False
        async with _lifespan(app):
            yield self.monque

    def _provide(self) -> Monque:
        return self.monque

    def _include(self, config: DashboardConfig, app_config: AppConfig) -> None:
        served = make_dashboard(self.monque, config)
        app_config.route_handlers.append(mount(served, config, app_config.path or ""))

        @asynccontextmanager
        async def serving(_app: Litestar) -> AsyncIterator[None]:
            async with served:
                yield

        app_config.lifespan.append(serving)

    @asynccontextmanager
    async def _open(self, _app: Litestar) -> AsyncIterator[None]:
        async with closed_on_exit(self.monque):
            yield

    async def _start(self, app: Litestar) -> None:
        """Begin to process jobs. Litestar calls start-up hooks after all lifespans have begun, so that jobs
        find what these have made."""
        for handler in self.jobs:
            self._register(handler, app)
        if self.process_jobs:
            await self._registered.schedule(self.jobs)
            await self.monque.start()

    def _register(self, handler: AnyHandler, app: Litestar) -> None:
        run = make_runner(handler, make_plan(handler, app.dependencies), app)
        # A child process has no application: it calls the function itself.
        bound = functools.wraps(handler.handler)(run) if handler.address is None else handler.handler
        self._registered.add(handler, rebound(handler, bound))


def _checked(jobs: Iterable[AnyHandler]) -> tuple[AnyHandler, ...]:
    """The jobs, each with a name of its own."""
    found: dict[str, AnyHandler] = {}
    for handler in jobs:
        if not isinstance(handler, JobHandler):
            raise ConfigurationError(
                f"{handler!r} is no job; decorate it with monque.litestar.job or cron, or register it with "
                "monque.worker, which needs no mention here"
            )
        if found.setdefault(handler.name, handler) is not handler:
            raise WorkerRegistrationError(
                f"{handler.name!r} is declared twice among the jobs of MonquePlugin", job_name=handler.name
            )
    return tuple(found.values())


@asynccontextmanager
async def _lifespan(app: Litestar) -> AsyncIterator[None]:
    """The lifespan of an app. Litestar puts what goes wrong in it into groups, which say nothing more."""
    try:
        async with app.lifespan():
            yield
    except BaseExceptionGroup as group:
        alone: BaseException = group
        while isinstance(alone, BaseExceptionGroup) and len(alone.exceptions) == 1:
            alone = alone.exceptions[0]
        raise alone from None


def _hosted(app: Litestar) -> Hosted:
    plugins = [plugin for plugin in app.plugins if isinstance(plugin, MonquePlugin)]
    if not plugins:
        raise ConfigurationError(
            "this application has no Monque; give it one: Litestar(plugins=[MonquePlugin(monque)])"
        )
    plugin = plugins[0]
    return Hosted(monque=plugin.monque, working=lambda: plugin.working(app), idle=lambda: plugin.idle(app))


register_apps(Litestar, _hosted)
