"""The life of a Monque inside the life of an application: its jobs, dependency and probes."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Annotated, Any

import pymongo
from fastapi import APIRouter, Depends, FastAPI, Request, Response, status
from fastapi.requests import HTTPConnection
from pymongo.errors import PyMongoError

from monque import ConfigurationError, Monque, NotOpenError, WorkerRegistrationError, Workers
from monque._hosting.apps import Hosted, closed_on_exit, register_apps
from monque._hosting.declare import Registered
from monque.fastapi.declared import AnyHandler
from monque.fastapi.router import forgotten_methods, handlers_of, hooks_of


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
    life = _Life(monque, tuple(routers), packages, process_jobs, Registered(monque))
    app.state.monque, app.state.monque_life = monque, life
    join_lifespan(app, life.running)


def join_lifespan(
    app: FastAPI, inside: Callable[[FastAPI, Mapping[str, Any]], AbstractAsyncContextManager[object]]
) -> None:
    """Enter what *inside* returns after the lifespan of *app* has begun, and leave it before that ends."""
    own_lifespan = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[Any]:
        async with own_lifespan(app) as state, inside(app, state or {}):
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
    """Return whether to process the jobs of an application in this process."""
    life: _Life | None = getattr(app.state, "monque_life", None)
    return life is None or life.process_jobs


@dataclass(slots=True)
class _Life:
    """The arguments of `setup_monque`, and the jobs registered by it."""

    monque: Monque
    routers: tuple[object, ...]
    packages: tuple[str, ...]
    process_jobs: bool
    registered: Registered

    @asynccontextmanager
    async def running(self, app: FastAPI, state: Mapping[str, Any]) -> AsyncIterator[None]:
        async with closed_on_exit(self.monque):
            handlers = find_handlers(self.routers, self.packages)
            for handler in handlers:
                self._register(handler, app, state)
            for hooks in find_hooks(self.routers, self.packages):
                self.monque.workers._include(hooks)
            if self.process_jobs:
                await self.registered.schedule(handlers)
                await self.monque.start()
            yield

    def _register(self, handler: AnyHandler, app: FastAPI, state: Mapping[str, Any]) -> None:
        try:
            self.registered.add(handler, handler.bound(app, state=state))
        except WorkerRegistrationError as error:
            raise WorkerRegistrationError(f"{handler.place}: {error}", job_name=handler.name) from error


def _hosted(app: FastAPI) -> Hosted:
    return Hosted(
        monque=monque_of(app), working=lambda: worker_lifespan(app), idle=lambda: producer_lifespan(app)
    )


register_apps(FastAPI, _hosted)


async def get_monque(connection: HTTPConnection) -> Monque:
    """The Monque that `setup_monque` gave to the application."""
    monque = getattr(connection.app.state, "monque", None)
    if not isinstance(monque, Monque):
        raise ConfigurationError("this application has no Monque; call setup_monque(app, monque) first")
    return monque


MonqueDep = Annotated[Monque, Depends(get_monque)]
"""A parameter of this type is the Monque of the application, in routes and in jobs."""


def find_handlers(declared: Iterable[object], packages: Iterable[str]) -> list[AnyHandler]:
    """The handlers of what was given and of all that stands in the packages, each once.

    Raises:
        WorkerRegistrationError: Two of them have one name; the message says where they stand.
    """
    found: dict[str, AnyHandler] = {}
    for handler in (*_given(declared), *_discovered(packages)):
        other = found.setdefault(handler.name, handler)
        if other is not handler:
            raise WorkerRegistrationError(
                f"{handler.name!r} is declared twice: {other.place} and {handler.place}",
                job_name=handler.name,
            )
    return list(found.values())


def find_hooks(declared: Iterable[object], packages: Iterable[str]) -> list[Workers]:
    """Return the holders of the hooks of the given routers, and of those in the packages."""
    discovered = (value for package in packages for module in _modules(package) for value in _values(module))
    return [hooks for each in (*declared, *discovered) if (hooks := hooks_of(each)) is not None]


def _given(declared: Iterable[object]) -> Iterator[AnyHandler]:
    for each in declared:
        handlers = handlers_of(each)
        if not handlers and hooks_of(each) is None:
            raise ConfigurationError(f"{each!r} declares no jobs; pass a JobRouter with at least one")
        yield from handlers


def _discovered(packages: Iterable[str]) -> Iterator[AnyHandler]:
    for package in packages:
        for module in _modules(package):
            for value in _values(module):
                _check_controller(value, module)
                yield from handlers_of(value)


def _values(module: ModuleType) -> list[object]:
    return list(vars(module).values())


def _modules(name: str) -> Iterator[ModuleType]:
    """Import a package with all its modules; an import that fails is not hidden."""
    module = importlib.import_module(name)
    yield module
    for info in pkgutil.iter_modules(getattr(module, "__path__", ())):
        if info.name != "__main__":
            yield from _modules(f"{name}.{info.name}")


def _check_controller(value: object, module: ModuleType) -> None:
    if (
        isinstance(value, type)
        and value.__module__ == module.__name__
        and (names := forgotten_methods(value))
    ):
        raise WorkerRegistrationError(
            f"{module.__name__}.{value.__qualname__} has jobs ({', '.join(names)}) but is no job_controller",
            job_name=names[0],
        )


_PATIENCE = 2.0


def health_router(monque: Monque) -> APIRouter:
    """A router with `/healthz` for liveness and `/readyz` for readiness.

    Alive means that the event loop turns: a process that answers need not be restarted. Ready means that it
    can do its work, else 503: the database answers, and the scheduler runs, is not stopping, and
    `Monque.is_healthy`. Of an app that only produces jobs, the first alone is asked.

    Examples:
        >>> app.include_router(health_router(monque))
    """
    router = APIRouter(include_in_schema=False)

    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "alive"}

    @router.get("/readyz")
    async def readyz(request: Request, response: Response) -> dict[str, str]:
        reason = await _trouble(monque, should_run=processes_jobs(request.app))
        if reason is None:
            return {"status": "ready"}
        response.status_code = status.HTTP_503_SERVICE_UNAVAILABLE
        return {"status": "not ready", "reason": reason}

    return router


async def _trouble(monque: Monque, *, should_run: bool) -> str | None:
    """Return the reason why it is not ready, or None."""
    try:
        with pymongo.timeout(_PATIENCE):
            await monque.database.command("ping")
    except NotOpenError:
        return "the scheduler is not open"
    except PyMongoError as error:
        return f"the database does not answer ({type(error).__name__})"
    if should_run and not monque.is_healthy():
        return "the scheduler is not running, or lost the database"
    return None
