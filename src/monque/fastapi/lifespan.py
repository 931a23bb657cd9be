"""The life of a Monque inside the life of an application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI

from monque import ConfigurationError, Monque, WorkerRegistrationError
from monque._hosting.apps import Hosted, register_apps
from monque._hosting.life import closed_on_exit
from monque.fastapi.declared import AnyHandler
from monque.fastapi.discover import find_handlers, find_hooks


def setup_monque(
    app: FastAPI,
    monque: Monque,
    *,
    routers: Iterable[object] = (),
    discover: Iterable[str] = (),
    process_jobs: bool = True,
) -> None:
    """Let *monque* live as long as *app*: it opens and starts after the app's own start-up, and is stopped
    gracefully before the app's own clean-up. Call it after all routers are included.

    Args:
        app: Its lifespan is joined, whether it has one of its own or not.
        monque: On any connection; afterwards `MonqueDep` gives it to routes and jobs.
        routers: Where jobs are declared: `JobRouter`s, and decorated classes and functions.
        discover: Packages to import with all their modules; every job declared there is registered.
        process_jobs: False for a producer: it stores and manages jobs and runs none. Its jobs are
            run by other processes, see `run_workers`.

    Examples:
        >>> app = FastAPI()
        >>> setup_monque(app, Monque("mongodb://localhost:27017/shop"), discover=["shop.jobs"])
    """
    if not isinstance(monque, Monque):
        raise ConfigurationError(
            f"setup_monque takes a Monque, such as Monque(your_database), got {monque!r}"
        )
    if getattr(app.state, "monque_life", None) is not None:
        raise ConfigurationError("this application has a Monque already; call setup_monque once")
    packages = (discover,) if isinstance(discover, str) else tuple(discover)
    life = _Life(monque, tuple(routers), packages, process_jobs)
    app.state.monque, app.state.monque_life = monque, life
    own_lifespan = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[Any]:
        async with own_lifespan(app) as state, life.running(app, state or {}):
            yield state

    app.router.lifespan_context = lifespan


async def run_workers(app: FastAPI) -> None:
    """Process the jobs of *app* in this process, without serving requests, until SIGINT or SIGTERM.

    The app's lifespan is run, so that its jobs find everything they find in the app. Jobs are processed
    here also if the app itself was set up with `process_jobs=False`.

    Examples:
        >>> asyncio.run(run_workers(app))
    """
    async with worker_lifespan(app) as monque:
        await monque.run()


@asynccontextmanager
async def worker_lifespan(app: FastAPI) -> AsyncIterator[Monque]:
    """The lifespan of *app* with its jobs processed in it, as in `run_workers`, for as long as you like.

    Examples:
        >>> async with worker_lifespan(app) as monque:
        ...     await monque.run_until_idle()
    """
    life = _life_of(app)
    life.process_jobs = True
    async with app.router.lifespan_context(app):
        yield life.monque


@asynccontextmanager
async def producer_lifespan(app: FastAPI) -> AsyncIterator[Monque]:
    """The lifespan of *app* with its jobs registered and none of them processed, as `monque web` needs it.

    Examples:
        >>> async with producer_lifespan(app) as monque:
        ...     await monque.enqueue("send-email", {"to": "ada@example.org"})
    """
    life = _life_of(app)
    life.process_jobs = False
    async with app.router.lifespan_context(app):
        yield life.monque


def monque_of(app: FastAPI) -> Monque:
    """The Monque that `setup_monque` gave to *app*."""
    return _life_of(app).monque


def _life_of(app: FastAPI) -> _Life:
    life: _Life | None = getattr(app.state, "monque_life", None)
    if life is None:
        raise ConfigurationError("this application has no Monque; call setup_monque(app, monque) first")
    return life


def processes_jobs(app: Any) -> bool:
    """Whether the jobs of an application are to be processed in this process."""
    life: _Life | None = getattr(app.state, "monque_life", None)
    return life is None or life.process_jobs


@dataclass(slots=True)
class _Life:
    """What `setup_monque` was told, and what came of it."""

    monque: Monque
    routers: tuple[object, ...]
    packages: tuple[str, ...]
    process_jobs: bool
    registered: set[str] = field(default_factory=set)

    @asynccontextmanager
    async def running(self, app: FastAPI, state: Mapping[str, Any]) -> AsyncIterator[None]:
        async with closed_on_exit(self.monque):
            handlers = find_handlers(self.routers, self.packages)
            for handler in handlers:
                self._register(handler, app, state)
            for hooks in find_hooks(self.routers, self.packages):
                self.monque.workers._include(hooks)
            if self.process_jobs:
                await self._schedule(handlers)
                await self.monque.start()
            yield

    def _register(self, handler: AnyHandler, app: FastAPI, state: Mapping[str, Any]) -> None:
        again = handler.name in self.registered  # the app was started before, as tests do
        try:
            self.monque.worker(
                handler.name,
                handler.bound(app, state=state),
                concurrency=handler.concurrency,
                replace=again,
                **handler.settings,
            )
        except WorkerRegistrationError as error:
            raise WorkerRegistrationError(f"{handler.place}: {error}", job_name=handler.name) from error
        self.registered.add(handler.name)
        handler._home.share(self.monque.workers._home)

    async def _schedule(self, handlers: Iterable[AnyHandler]) -> None:
        for handler in handlers:
            if handler.cron is not None:
                settings = handler.schedule_settings
                await self.monque.schedule(handler.cron, handler, timezone=handler.timezone, **settings)


def _hosted(app: FastAPI) -> Hosted:
    return Hosted(
        monque=monque_of(app), working=lambda: worker_lifespan(app), idle=lambda: producer_lifespan(app)
    )


register_apps(FastAPI, _hosted)
