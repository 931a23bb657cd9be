"""Declaring jobs: a router for functions and classes, and decorators that do without one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta, tzinfo
from types import FunctionType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack, overload

from monque import Job, State, WorkerRegistrationError, Workers, WorkerSettings
from monque._hosting.declare import CronSettings, Declaration, declaration, recurring
from monque.fastapi.declared import (
    AnyHandler,
    JobMethod,
    MethodHandler,
    get_handlers,
    give_methods,
    set_handlers,
)
from monque.fastapi.handler import JobHandler, make_handler

S = TypeVar("S")
T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)
HookT = TypeVar("HookT", bound=Callable[[], Any])

# The attribute in which a method keeps the arguments of its decorator, until its class is known.
_DECLARATION = "__monque_declaration__"


class Declare(Protocol):
    """A decorator: a function becomes a `JobHandler`; a class stays what it is, and so does a method of an
    instance. All of them have `enqueue` and `schedule`."""

    # They overlap: a class can be called, and the first argument of a method may be a job. The first counts.
    @overload
    def __call__(self, target: C, /) -> C: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, target: Callable[Concatenate[Job[T], P], R], /
    ) -> JobHandler[T, P, R]: ...

    @overload
    def __call__(self, target: Callable[Concatenate[S, Job[T], P], R], /) -> JobMethod[S, T, P, R]: ...


class JobRouter:
    """A set of jobs, declared apart from the application and handed to `setup_monque`.

    Args:
        namespace: Stands before each name: `send` in the namespace `email` is `email.send`.

    Examples:
        >>> jobs = JobRouter(namespace="email")
        >>> @jobs.job("send", concurrency=3)
        ... async def send(job: Job[Email], mailer: Annotated[Mailer, Depends(get_mailer)]) -> None:
        ...     await mailer.send(job.data)
    """

    def __init__(self, namespace: str | None = None) -> None:
        self._namespace = namespace
        self.handlers: list[AnyHandler] = []
        self._holder = Workers()  # it holds the hooks and listeners declared here, and no workers
        self.on = self._holder.on
        """As `Monque.on`, for the Monque of the application; declare listeners before that starts."""

    def job(
        self, name: str, *, concurrency: int | None = None, **settings: Unpack[WorkerSettings]
    ) -> Declare:
        """Declare the handler of a job name: a function, or a class with a method `handle(self, job)`.

        The first parameter takes the job; all others are dependencies, as in a route.

        Args:
            name: The job name.
            concurrency: How many of these jobs run at once in this process.
            settings: How its jobs run: see `WorkerSettings`.

        Raises:
            ConfigurationError: A setting is wrong or unknown; the message names it.
            WorkerRegistrationError: It depends on something that only an HTTP request has.
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
        """As `job`, for a recurring job: it is scheduled when the application starts.

        Args:
            expression: Five fields, a name such as @daily or @hourly, or an interval of at least a second.
            name: The job name; default: the name of the function or class.
            timezone: The IANA zone the fields are meant in, as a name or a `ZoneInfo`.
            concurrency: How many of these jobs run at once in this process.
            settings: When it runs and how its runs run: see `ScheduleSettings` and `WorkerSettings`.

        Raises:
            ConfigurationError: As in `job`; also for `expires`, which does not apply to a schedule.
        """
        return self._declare(recurring(expression, name, timezone, concurrency, settings))

    def on_start(self, hook: HookT) -> HookT:
        """As `Monque.on_start`, for the Monque of the application. Hooks have no dependencies."""
        return self._holder.on_start(hook)

    def on_stop(self, hook: HookT) -> HookT:
        """As `Monque.on_stop`, for the Monque of the application."""
        return self._holder.on_stop(hook)

    @property
    def state(self) -> State:
        """The state of the application's Monque, once the application has started.

        Raises:
            ConfigurationError: No application with this router has started yet, or several have.
        """
        return self._holder.state

    def _declare(self, given: Declaration) -> Declare:
        def declare(target: Any) -> Any:
            if _is_method(target):
                raise WorkerRegistrationError(
                    f"{target.__qualname__} is a method: mark it with monque.fastapi.job or cron, "
                    "and its class with job_controller",
                    job_name=given.name_of(target, self._namespace),
                )
            declared = _declared(target, given, self._namespace)
            self.handlers += handlers_of(declared)
            return declared

        return declare


def job(name: str, *, concurrency: int | None = None, **settings: Unpack[WorkerSettings]) -> Declare:
    """Declare the handler of a job name without a router; `setup_monque(discover=...)` finds it.

    It stands on a function, on a class with a method `handle(self, job)`, or on a method of a class
    that is a `job_controller`. The arguments are those of `JobRouter.job`.

    Examples:
        >>> @job("process-order")
        ... class ProcessOrder:
        ...     async def handle(self, job: Job[Order]) -> None: ...
    """
    return _declare_apart(declaration(name, concurrency, settings))


def cron(
    expression: str | timedelta,
    name: str | None = None,
    *,
    timezone: str | tzinfo = "UTC",
    concurrency: int | None = None,
    **settings: Unpack[CronSettings],
) -> Declare:
    """As `job`, for a recurring job; the arguments are those of `JobRouter.cron`."""
    return _declare_apart(recurring(expression, name, timezone, concurrency, settings))


def job_controller(namespace: str | None = None) -> Callable[[C], C]:
    """Declare several jobs in one class: its methods marked with `job` and `cron`.

    Each run has an instance of its own, made with the dependencies of the constructor.

    Examples:
        >>> @job_controller("billing")
        ... class Billing:
        ...     def __init__(self, db: DbDep) -> None:
        ...         self.db = db
        ...
        ...     @job("charge")
        ...     async def charge(self, job: Job[Charge]) -> None: ...
    """

    def declare(cls: C) -> C:
        # Statically: of the class, a marked method is its handler as soon as it has one.
        marked = [method for _, method in inspect.getmembers_static(cls, _may_be_marked) if _mark(method)]
        if not marked:
            raise WorkerRegistrationError(
                f"{cls.__qualname__} has no method marked with job or cron", job_name=namespace or ""
            )
        handlers: list[AnyHandler] = []
        for method in marked:
            given = getattr(method, _DECLARATION)
            function = method.function if isinstance(method, JobMethod) else method
            name = given.name_of(method, namespace)
            handler = make_handler(name, function, given, owner=cls, kind=MethodHandler)
            set_handlers(method, handler)
            handlers.append(handler)
        set_handlers(cls, *handlers)
        return cls

    return declare


def handlers_of(declared: object) -> tuple[AnyHandler, ...]:
    """The handlers that a router or something decorated stands for; none for anything else."""
    if isinstance(declared, JobRouter):
        return tuple(declared.handlers)
    if isinstance(declared, JobHandler):
        return (declared,)
    return get_handlers(declared) if isinstance(declared, type | FunctionType) else ()


def hooks_of(declared: object) -> Workers | None:
    """The holder of the hooks and listeners of a router; None for anything else, and for a router without."""
    holder = declared._holder if isinstance(declared, JobRouter) else None
    return holder if holder is not None and (holder._hooks.declared or holder._listeners.declared) else None


def forgotten_methods(cls: type) -> list[str]:
    """The methods marked as jobs in a class that is no `job_controller`."""
    return [] if handlers_of(cls) else [name for name, value in vars(cls).items() if _mark(value)]


def _declare_apart(given: Declaration) -> Declare:
    def declare(target: Any) -> Any:
        if _is_method(target):
            setattr(target, _DECLARATION, given)
            return JobMethod(target)
        return _declared(target, given, None)

    return declare


def _declared(target: Any, given: Declaration, namespace: str | None) -> Any:
    if not isinstance(target, type):
        if not inspect.isfunction(target):
            raise WorkerRegistrationError(
                f"a job is a function or a class, not {target!r}", job_name=given.name or ""
            )
        return make_handler(given.name_of(target, namespace), target, given)
    name = given.name_of(target, namespace)
    method = getattr(target, "handle", None)
    if not inspect.isfunction(method):
        raise WorkerRegistrationError(f"{target.__qualname__} has no method handle(self, job)", job_name=name)
    set_handlers(target, make_handler(name, method, given, owner=target))
    give_methods(target)
    return target


def _is_method(target: Any) -> bool:
    """Return whether it is a function that stands in the body of a class."""
    around = getattr(target, "__qualname__", "").rpartition(".")[0]
    return inspect.isfunction(target) and around != "" and not around.endswith("<locals>")


def _may_be_marked(value: object) -> bool:
    return inspect.isfunction(value) or isinstance(value, JobMethod)


def _mark(value: object) -> Declaration | None:
    return getattr(value, _DECLARATION, None)
