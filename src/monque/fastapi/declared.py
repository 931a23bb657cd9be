"""Decorated classes and methods: they stay what they are, and can store their own jobs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar, Unpack, cast, overload

from monque import ConfigurationError, EnqueueOptions, Job, ScheduleOptions
from monque._unawaited import noting_calls
from monque.fastapi.handler import JobHandler

S = TypeVar("S")
T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")

AnyHandler: TypeAlias = JobHandler[Any, ..., Any]

# The attribute in which a decorated class or method keeps its handlers.
_HANDLERS = "__monque_handlers__"


def set_handlers(declared: Any, *handlers: AnyHandler) -> None:
    """Note the handlers of a decorated class or method."""
    setattr(declared, _HANDLERS, handlers)


def get_handlers(declared: Any) -> tuple[AnyHandler, ...]:
    """The handlers that were noted; not those of a base class, since a subclass is another class."""
    handlers: tuple[AnyHandler, ...] = vars(declared).get(_HANDLERS, ())
    return handlers


@noting_calls
class JobClass(Generic[T]):
    """A base for classes that are decorated with `job`, which names the payload for type checkers.

    Every decorated class has `enqueue` and `schedule`; without this base, type checkers do not know them,
    because a decorator cannot add to the type of a class.

    Examples:
        >>> @job("process-order")
        ... class ProcessOrder(JobClass[Order]):
        ...     async def handle(self, job: Job[Order]) -> None: ...
        >>> await ProcessOrder.enqueue(Order(number=7))
    """

    @overload
    @classmethod
    async def enqueue(
        cls: type[JobClass[None]], data: None = None, **options: Unpack[EnqueueOptions]
    ) -> Job[None]: ...

    @overload
    @classmethod
    async def enqueue(cls, data: T, **options: Unpack[EnqueueOptions]) -> Job[T]: ...

    @classmethod
    async def enqueue(cls, data: Any = None, **options: Unpack[EnqueueOptions]) -> Job[Any]:
        """Store a job for this class: as `Worker.enqueue`."""
        job: Job[Any] = await _only_handler(cls).enqueue(data, **options)
        return job

    @overload
    @classmethod
    async def schedule(
        cls: type[JobClass[None]],
        cron: str | timedelta,
        data: None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Job[None]: ...

    @overload
    @classmethod
    async def schedule(cls, cron: str | timedelta, data: T, **options: Unpack[ScheduleOptions]) -> Job[T]: ...

    @classmethod
    async def schedule(
        cls, cron: str | timedelta, data: Any = None, **options: Unpack[ScheduleOptions]
    ) -> Job[Any]:
        """Store a recurring job for this class: as `Worker.schedule`."""
        job: Job[Any] = await _only_handler(cls).schedule(cron, data, **options)
        return job


def give_methods(cls: type) -> None:
    """Give a decorated class `enqueue` and `schedule`, unless it has something of that name."""
    for name in ("enqueue", "schedule"):
        if not hasattr(cls, name):
            setattr(cls, name, vars(JobClass)[name])


def _only_handler(cls: type) -> AnyHandler:
    handlers = get_handlers(cls)
    if len(handlers) != 1:
        raise ConfigurationError(
            f"{cls.__qualname__} is not decorated with job or cron, so it has no job to store"
        )
    return handlers[0]


class JobMethod(Generic[S, T, P, R]):
    """A method of a `job_controller` that is marked with `job` or `cron`.

    Of an instance it is the method. Of the class it is the `JobHandler`: `Billing.charge.enqueue(data)`.
    """

    def __init__(self, function: Callable[Concatenate[S, Job[T], P], R]) -> None:
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, instance: S, job: Job[T], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, as another decorator above this one does."""
        return self.function(instance, job, *args, **kwargs)

    @overload
    def __get__(self, instance: None, owner: type[S]) -> MethodHandler[S, T, P, R]: ...

    @overload
    def __get__(self, instance: S, owner: type[S]) -> Callable[Concatenate[Job[T], P], R]: ...

    def __get__(self, instance: S | None, owner: type[S]) -> Any:
        if instance is not None:
            return self.function.__get__(instance, owner)
        own: Any = self.function
        for handler in get_handlers(owner):
            if handler.handler is own:
                return handler
        return self  # its class is not a job_controller, or not yet

    def __getattr__(self, name: str) -> Any:
        if name in ("enqueue", "schedule"):
            raise ConfigurationError(
                f"{self.function.__qualname__} is no job yet; decorate its class with job_controller"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class MethodHandler(JobHandler[T, P, R], Generic[S, T, P, R]):
    """The `JobHandler` of a method: called with an instance first."""

    __slots__ = ()

    # It takes the instance too.
    def __call__(  # type: ignore[override]
        self, instance: S, job: Job[T], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Call the method itself, its dependencies given by hand: a unit test."""
        method = cast("Callable[Concatenate[S, Job[T], P], R]", self.handler)
        return method(instance, job, *args, **kwargs)
