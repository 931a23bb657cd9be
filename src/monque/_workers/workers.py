"""Workers: handlers by job name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, Unpack, cast, overload

from monque._unawaited import noting_calls
from monque._values.errors import ConfigurationError, WorkerRegistrationError
from monque._values.events import Event, Listener
from monque._values.job import Job, R, R_co, with_defaults
from monque._values.limits import Limit
from monque._values.rules import check_name
from monque._values.settings import WorkerSettings, check_hard_limit, check_worker_settings
from monque._values.state import State
from monque._workers.home import EnqueueOptions, Home, ScheduleOptions
from monque._workers.hooks import Hooks, HookT
from monque._workers.middleware import AnyMiddleware, check_middleware
from monque._workers.payload import Codec
from monque._workers.signature import is_async, name_of, payload_type, require_handler, returned_type
from monque._workers.subscribe import Listeners, subscribe, subscribes

T = TypeVar("T")
Handler = Callable[[Job[T]], Awaitable[Any] | Any]


@noting_calls
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Worker(Generic[T, R_co]):
    """The handler registered for one job name. Its jobs are stored with `enqueue` and `schedule`.

    It can be called like the handler, and handed to `Monque.enqueue` in place of the job name.

    Examples:
        >>> @monque.worker("send-email")
        ... async def send_email(job: Job[Email]) -> None: ...
        >>> await send_email.enqueue(Email(to="ada@example.org"), delay=timedelta(minutes=5))
    """

    name: str
    handler: Handler[T]
    concurrency: int | None = None
    settings: WorkerSettings = field(default_factory=WorkerSettings)
    codec: Codec[T] = field(repr=False)
    is_async: bool = field(repr=False)
    """It runs on the event loop."""
    address: str | None = field(default=None, repr=False)
    """The address of the handler for a child process, as `module:qualname`; None if it runs in this one."""
    returns: Any = field(default=Any, repr=False)
    """The type that the handler's annotation names for its result; `Any` without one."""
    _home: Home = field(default_factory=Home, repr=False)
    _advice: ClassVar[str] = "hand its Workers() to Monque(workers=...)"

    if not TYPE_CHECKING:

        def __class_getitem__(cls, given: Any) -> Any:
            return super(Worker, cls).__class_getitem__(with_defaults(cls, given))

    @property
    def limit(self) -> Limit | None:
        """The limit over all processes, if its jobs have one."""
        return cast("Limit | None", self.settings.get("limit"))

    @property
    def can_be_ended(self) -> bool:
        """Return whether its handler ends when it is told so: a thread does not, unless it looks."""
        return self.is_async or self.address is not None

    def __call__(self, job: Job[T]) -> Awaitable[Any] | Any:
        """Call the handler directly, as in a unit test."""
        return self.handler(job)

    @overload
    async def enqueue(
        self: Worker[None, R], data: None = None, **options: Unpack[EnqueueOptions]
    ) -> Job[None, R]: ...

    @overload
    async def enqueue(self, data: T, **options: Unpack[EnqueueOptions]) -> Job[T, R_co]: ...

    async def enqueue(self, data: Any = None, **options: Unpack[EnqueueOptions]) -> Job[Any]:
        """Store a job for this worker, in the Monque it belongs to; as `Monque.enqueue`.

        Args:
            data: The payload, of the type that the handler's annotation names. Type checkers check it.
            options: `run_at`, `delay`, `unique_key`, `session` and `JobSettings`, as in `Monque.enqueue`.

        Raises:
            ConfigurationError: The worker belongs to no Monque yet, or to several.

        Examples:
            >>> await send_email.enqueue(Email(to="ada@example.org"), unique_key="welcome-ada")
        """
        owner = self._home.owner(self.name, self._advice)
        job: Job[Any] = await owner.enqueue(self, data, **options)
        return job

    @overload
    async def schedule(
        self: Worker[None], cron: str | timedelta, data: None = None, **options: Unpack[ScheduleOptions]
    ) -> Job[None]: ...

    @overload
    async def schedule(
        self, cron: str | timedelta, data: T, **options: Unpack[ScheduleOptions]
    ) -> Job[T]: ...

    async def schedule(
        self, cron: str | timedelta, data: Any = None, **options: Unpack[ScheduleOptions]
    ) -> Job[Any]:
        """Store a recurring job for this worker, in the Monque it belongs to; as `Monque.schedule`.

        Args:
            cron: Five fields, one of @yearly @monthly @weekly @daily @hourly, or an interval.
            data: The payload of every run.
            options: `unique_key`, `timezone`, `session`, `ScheduleSettings` and `JobSettings`, as in
                `Monque.schedule`.

        Raises:
            ConfigurationError: The worker belongs to no Monque yet, or to several.

        Examples:
            >>> await clean_up.schedule("0 3 * * *", timezone="Europe/Berlin")
        """
        owner = self._home.owner(self.name, self._advice)
        job: Job[Any] = await owner.schedule(cron, self, data, **options)
        return job


class Registers(Protocol):
    """The decorator that registers a handler: type checkers learn what it takes and what it returns."""

    @overload
    def __call__(self, handler: Callable[[Job[T]], Coroutine[Any, Any, R]], /) -> Worker[T, R]: ...

    @overload
    def __call__(self, handler: Callable[[Job[T]], R], /) -> Worker[T, R]: ...


class WorkerMethod(Protocol):
    """`worker` for type checkers: a handler becomes a `Worker`; without one, a decorator is returned."""

    @overload
    def __call__(
        self,
        name: str,
        handler: None = None,
        *,
        concurrency: int | None = None,
        replace: bool = False,
        **settings: Unpack[WorkerSettings],
    ) -> Registers: ...

    @overload
    def __call__(
        self,
        name: str,
        handler: Callable[[Job[T]], Coroutine[Any, Any, R]],
        *,
        concurrency: int | None = None,
        replace: bool = False,
        **settings: Unpack[WorkerSettings],
    ) -> Worker[T, R]: ...

    @overload
    def __call__(
        self,
        name: str,
        handler: Callable[[Job[T]], R],
        *,
        concurrency: int | None = None,
        replace: bool = False,
        **settings: Unpack[WorkerSettings],
    ) -> Worker[T, R]: ...


def registers(method: Callable[..., Any]) -> WorkerMethod:
    """Let type checkers judge a method as `WorkerMethod` says. At run time it is the method itself."""
    return cast("WorkerMethod", method)


class Workers:
    """A set of workers, declared apart from a `Monque` and handed to it.

    Args:
        middleware: As of `Monque`, around the runs of every Monque that these workers are handed to, inside
            of its own.

    Examples:
        >>> workers = Workers()
        >>> @workers.worker("send-email", concurrency=3)
        ... async def send_email(job: Job[dict[str, str]]) -> None: ...
        >>> monque = Monque(workers=workers)
        >>> await send_email.enqueue({"to": "ada@example.org"})
    """

    def __init__(self, *, middleware: Iterable[AnyMiddleware] = ()) -> None:
        self.middleware = check_middleware(middleware)
        """In order; the first one is the outermost."""
        self._by_name: dict[str, Worker[Any]] = {}
        self._home = Home()
        self._hooks = Hooks()
        self._listeners = Listeners()
        self._only: frozenset[str] | None = None
        self._excluding: frozenset[str] = frozenset()
        self.has_limits = False
        """A worker has a limit, or had one: the claim loop asks only then."""

    @registers
    def worker(
        self,
        name: str,
        handler: Handler[Any] | None = None,
        *,
        concurrency: int | None = None,
        replace: bool = False,
        **settings: Unpack[WorkerSettings],
    ) -> Any:
        """Register the handler of a job name; a decorator without *handler*.

        The arguments are those of `Monque.worker`.

        Raises:
            ConfigurationError: A setting is wrong or unknown; the message names it.
            WorkerRegistrationError: The name has a worker, and *replace* is not set; or the handler cannot be
                used: it does not take one argument, or it is a generator function.
        """
        check_name(name)
        _check_concurrency(name, concurrency)
        checked = check_worker_settings(settings)
        check_hard_limit(checked.get("timeout"), checked)
        if handler is None:
            return lambda handler: self._register(name, handler, concurrency, checked, replace=replace)
        return self._register(name, handler, concurrency, checked, replace=replace)

    def _register(
        self,
        name: str,
        handler: Handler[T],
        concurrency: int | None,
        settings: WorkerSettings,
        *,
        replace: bool,
    ) -> Worker[T]:
        taken = self._by_name.get(name)
        if taken is not None and not replace:
            raise WorkerRegistrationError(
                f"{name!r} has a worker already ({_place(taken.handler)}); pass replace=True to replace it",
                job_name=name,
            )
        if not callable(handler):
            raise WorkerRegistrationError(
                f"the handler of {name!r} must be callable, got {handler!r}", job_name=name
            )
        declared = handler if isinstance(handler, Worker) else None
        handler = handler if declared is None else declared.handler
        try:
            if declared is None:
                codec: Codec[T] = Codec.of(payload_type(handler, Job))
            else:  # declared elsewhere, where its payload type was found out
                require_handler(handler)
                codec = declared.codec
            address = address_in_mode(handler, settings)
        except ConfigurationError as error:
            raise WorkerRegistrationError(
                f"the handler of {name!r} cannot be used: {error}", job_name=name
            ) from error
        worker = Worker(
            name=name,
            handler=handler,
            concurrency=concurrency,
            settings=settings,
            codec=codec,
            is_async=address is None and is_async(handler),
            address=address,
            returns=returned_type(handler) if declared is None else declared.returns,
            _home=self._home,
        )
        self._add(worker)
        return worker

    def _add(self, worker: Worker[Any]) -> None:
        """Know a worker, unless its rate says something else than that of another worker that shares it."""
        rate = None if worker.limit is None else worker.limit.rate
        for other in self._by_name.values() if rate is not None and rate.name is not None else ():
            known = None if other.limit is None or other.name == worker.name else other.limit.rate
            if known is not None and rate is not None and known.name == rate.name and known != rate:
                raise ConfigurationError(
                    f"{worker.name!r} and {other.name!r} share the rate {rate.name!r}, so both must give the "
                    f"same count and time; got {rate.count} per {rate.per} and {known.count} per {known.per}"
                )
        self._by_name[worker.name] = worker
        self.has_limits |= worker.limit is not None

    @subscribes
    def on(self, event: str | type[Event], listener: Listener[Any] | None = None) -> Any:
        """As `Monque.on`, for every Monque that these workers are handed to."""
        return subscribe(self._listeners.add, event, listener)

    def on_start(self, hook: HookT) -> HookT:
        """As `Monque.on_start`, for every Monque that these workers are handed to."""
        return self._hooks.add(hook, is_stop=False)

    def on_stop(self, hook: HookT) -> HookT:
        """As `Monque.on_stop`, for every Monque that these workers are handed to."""
        return self._hooks.add(hook, is_stop=True)

    @property
    def state(self) -> State:
        """The state of the Monque that these workers belong to; in a hook, of the one that calls it.

        Raises:
            ConfigurationError: They belong to no Monque yet, or to several.
        """
        return self._home.state()

    def _include(self, other: Workers) -> None:
        """Take over hooks, listeners and middleware of *other*, once; its workers have the same Monques."""
        self.middleware += tuple(each for each in other.middleware if each not in self.middleware)
        self._hooks.include(other._hooks)
        self._listeners.include(other._listeners)
        other._home.share(self._home)

    def restrict(self, *, only: Iterable[str] | None = None, excluding: Iterable[str] = ()) -> None:
        """Run jobs of some names only; workers of others stay known, registered before or later.

        Examples:
            >>> workers.restrict(excluding=["render-video"])
        """
        self._only = None if only is None else frozenset(only)
        self._excluding = frozenset(excluding)

    def serves(self, name: str) -> bool:
        """Return whether jobs of this name run here: it has a worker that `restrict` does not leave out."""
        return (
            name in self._by_name
            and (self._only is None or name in self._only)
            and name not in self._excluding
        )

    @property
    def served(self) -> list[Worker[Any]]:
        """The workers whose jobs run here, see `serves`."""
        return [worker for worker in self if self.serves(worker.name)]

    def get(self, name: str) -> Worker[Any] | None:
        """The worker of this name, if there is one."""
        return self._by_name.get(name)

    def settings_of(self, name: object) -> WorkerSettings:
        """The settings of the worker of this name, whatever a document holds there; none without a worker."""
        # `bson.Code` is a str that cannot be hashed.
        worker = self._by_name.get(name) if type(name) is str else None
        return WorkerSettings() if worker is None else worker.settings

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Worker[Any]]:
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)


def address_in_mode(handler: Callable[..., Any], settings: WorkerSettings) -> str | None:
    """Return the address from which a child process imports the handler; None if its mode needs none.

    Raises:
        ConfigurationError: The handler cannot run in this mode.
    """
    mode = settings.get("mode")
    if mode == "thread" and is_async(handler):
        raise ConfigurationError(
            f"mode='thread' is for def, and {name_of(handler)} is an async def, which needs an event loop; "
            "write it as def, or leave mode out"
        )
    if mode != "process":
        return None
    from monque._workers.address import address_of  # with the first worker that has one

    return address_of(handler)


def _check_concurrency(name: str, concurrency: object) -> None:
    if concurrency is None:
        return
    if not isinstance(concurrency, int) or isinstance(concurrency, bool) or concurrency < 1:
        raise ConfigurationError(
            f"the concurrency of {name!r} must be a whole number of at least 1, got {concurrency!r}"
        )


def _place(handler: Callable[..., Any]) -> str:
    module = getattr(handler, "__module__", "?")
    return f"{module}.{getattr(handler, '__qualname__', repr(handler))}"
