"""The desk of a request: decide, read in turn, write the trail; and what all desks of a dashboard share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field, fields
from datetime import datetime, timedelta
from functools import partial
from inspect import isawaitable
from typing import Any, Literal, ParamSpec, Protocol, TypeAlias, TypeVar

from monque import ConfigurationError, Job, JobFilter, Monque, QueueView, Schedule
from monque.web.access.permissions import Access, Action, Authorize, Caller, denied, refusal
from monque.web.access.redaction import Redaction
from monque.web.errors import (
    BadRequestError,
    DatabaseAwayError,
    ForbiddenError,
    HookFailedError,
    KeyTakenError,
    NotOfferedError,
    Problem,
    surface_errors,
)
from monque.web.live.pulse import Pulse
from monque.web.live.streams import Streams
from monque.web.outage import Outage
from monque.web.read_cache import KEPT, Keep, Looks
from monque.web.text import is_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most that a dashboard reads, accepts and sends.

    Attributes:
        page: Jobs on one page.
        body: Bytes of a request's body; enqueueing and editing schedules take 1 MiB.
        payload: Bytes of a payload that is shown; larger ones are only downloaded.
        query_timeout: How long the server may work on one read.
        queries_at_once: How many reads run at once; others wait.
        streams: How many live streams there are at once.
        tick: How often live data is read, at most.
        window: How many of the newest failures are grouped.
    """

    page: int = 100
    body: int = 64 * 1024
    payload: int = 256 * 1024
    query_timeout: timedelta = timedelta(seconds=5)
    queries_at_once: int = 8
    streams: int = 500
    tick: timedelta = timedelta(seconds=1)
    window: int = 10_000

    def __post_init__(self) -> None:
        for each in fields(self):
            _check(each.name, getattr(self, each.name), type(each.default))


# The largest of any of these: far beyond it, a number is a mistaken unit.
_MOST = 2**31 - 1
_LONGEST = timedelta(hours=1)


def _check(name: str, value: object, kind: type) -> None:
    if kind is timedelta:
        if not isinstance(value, timedelta) or not timedelta(0) < value <= _LONGEST:
            raise ConfigurationError(f"limits.{name} must be a timedelta of up to an hour, got {value!r}")
    elif not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MOST:
        raise ConfigurationError(f"limits.{name} must be a whole number of at least 1, got {value!r}")


T = TypeVar("T")
P = ParamSpec("P")
N = TypeVar("N", bound="Named")
Target: TypeAlias = Job[Any] | JobFilter | str
"""The target of an action: a job, the jobs of a filter, or all jobs of a name."""
Outcome: TypeAlias = Literal["done", "refused", "failed"]

logger = logging.getLogger("monque.web")

# The limit of counts: the server walks through so many index entries in some tens of milliseconds.
MOST_COUNTED = 100_000
_COUNTS_KEPT = timedelta(seconds=5)
_COUNTS_SHARE = 10


class Named(Protocol):
    """Something that belongs to a job name, or to none."""

    @property
    def name(self) -> Any:
        """The name."""


@dataclass(slots=True, kw_only=True)
class Draft:
    """An entry of the audit trail before it is written; the function that acts adds what it learns."""

    action: str
    job_id: Any = None
    name: str | None = None
    filter: Any = None
    count: int | None = None
    errors: int | None = None
    before: Job[Any] | Schedule | Mapping[str, Any] | None = None
    after: Job[Any] | Schedule | Mapping[str, Any] | None = None
    note: str | None = None
    is_empty: bool = False
    """Nothing was asked for, or nothing changed: the trail leaves it out."""


@dataclass(eq=False)
class Setup:
    """The objects that all requests of one dashboard share; the app sets *streams*, the open live streams."""

    monque: Monque
    _: KW_ONLY
    authorize: Authorize | None = None
    read_only: bool = False
    allow_enqueue: bool = False
    redact: Redaction = Redaction()
    limits: Limits = Limits()
    title: str = "Monque"
    badge: str | None = None
    links: Mapping[str, str] = field(default_factory=dict)
    root_path: str | None = None
    streams: Streams = field(init=False)

    def __post_init__(self) -> None:
        self.outage = Outage(self.monque)
        self.pulse = Pulse(
            self.monque,
            tick=self.limits.tick,
            read_timeout=self.limits.query_timeout,
            check=self.outage.check,
        )
        self.looks = Looks(at_once=self.limits.queries_at_once)
        self.is_preparing = False
        # Entries of the trail that are written though nobody waits for them.
        self._recording: set[asyncio.Task[None]] = set()

    async def prepare(self) -> None:
        """Begin the use that lists of failures rely on. To build its index may take long.

        Raises:
            MonqueError: The index cannot be made.
        """
        self.is_preparing = True
        try:
            await self.monque.begin_use("failures")
        finally:
            self.is_preparing = False

    def go_on(self, recorded: Coroutine[Any, Any, None]) -> None:
        """Write an entry of the trail though nobody waits for it."""
        task = asyncio.create_task(recorded)
        self._recording.add(task)
        task.add_done_callback(self._recording.discard)

    async def close(self) -> None:
        """End what is under way."""
        for task in self._recording:
            task.cancel()
        await asyncio.gather(*self._recording, return_exceptions=True)
        await self.looks.close()
        await self.pulse.close()
        await self.outage.close()


@dataclass(frozen=True, slots=True)
class Desk:
    """The caller of one request, and what the functions behind the routes do for them."""

    setup: Setup
    caller: Caller

    @property
    def monque(self) -> Monque:
        """The Monque of the dashboard."""
        return self.setup.monque

    @property
    def limits(self) -> Limits:
        """The limits of the dashboard."""
        return self.setup.limits

    @property
    def redact(self) -> Redaction:
        """The redaction of the dashboard."""
        return self.setup.redact

    @property
    def max_time(self) -> timedelta:
        """The time that the server may work on one read."""
        return self.setup.limits.query_timeout

    @property
    def asks_by_name(self) -> bool:
        """Tell whether some callers may not see some job names."""
        return self.setup.authorize is not None

    def now(self) -> datetime:
        """The time, by the server's clock."""
        return self.setup.monque.server_time()

    async def admit(self, action: Action, *, doing: str | None = None, job_id: str | None = None) -> None:
        """Refuse a caller who may never do this, before anything is parsed or read.

        Args:
            action: The right that is needed; what is decided here is not asked again for the same caller.
            doing: What the trail calls it if it is refused; None leaves it out of the trail.
            job_id: The job that it is about, for the trail.

        Raises:
            ForbiddenError: They may not, or nobody may.
            NotOfferedError: The core does not offer it.
            HookFailedError: `authorize` raised.
        """
        if doing is None:
            return await self.demand(action)
        async with self.audited(Draft(action=doing, job_id=job_id), only_failures=True):
            await self.demand(action)
        return None

    async def demand(self, action: Action, target: Target | None = None) -> None:
        """Raise unless the caller may do this: in general, and to this target."""
        await self._decide(action, None)
        if isinstance(target, str):
            await self._decide(action, target)
        elif target is not None:
            await self._ask(action, target)

    async def _decide(self, action: Action, name: str | None) -> None:
        """Ask once in a request; a page of a hundred jobs has few names."""
        decided = self.caller.decided
        if (action, name) not in decided:
            decided[action, name] = await self._refusal(action, name)
        if (refused := decided[action, name]) is not None:
            raise refused

    async def _refusal(self, action: Action, name: str | None) -> Problem | None:
        refused = refusal(
            action,
            may=self.caller.actor.may,
            read_only=self.setup.read_only,
            allow_enqueue=self.setup.allow_enqueue,
        )
        if refused is None:
            try:
                await self._ask(action, name)
            except ForbiddenError as error:
                return error
        return refused

    async def demand_for_all(self, action: Action, filter: JobFilter) -> None:  # noqa: A002
        """Raise unless the caller may do this to all jobs of a filter, whatever their names are."""
        await self.demand(action, filter)
        if not self.asks_by_name or filter.name is not None:
            return
        for name in await self._names_in(filter):
            if not await self.may(action, name):
                raise ForbiddenError(
                    "You may not do this to jobs of all names: choose one.", v1_text="Action denied"
                )

    async def _names_in(self, filter: JobFilter) -> Iterable[str]:  # noqa: A002 - as the core calls it
        """The names of the jobs of a filter; at least those.

        A unique key must not be found out by what is refused: then all names count.
        """
        if filter.unique_key is None:
            counts = await self.read(self.monque.job_counts, filter, limit=MOST_COUNTED)
            if not counts.capped:
                return counts.by_name
        return [view.name for view in await self.queue_views()]

    async def queue_views(self) -> list[QueueView]:
        """The job names with their numbers, shared by all who ask."""
        return await self.share_for(seldom, self.monque.queue_views)

    async def readable(self, things: Iterable[N]) -> list[N]:
        """Return the things whose name the caller may read about; what has no name is for everybody."""
        if not self.asks_by_name:
            return list(things)
        return [each for each in things if await self.may(Action.READ, name_of(each))]

    async def may(self, action: Action, target: Target | None = None) -> bool:
        """Return whether the caller may do this."""
        decided = self.caller.decided
        if not self.asks_by_name:
            target = None  # without a hook, all targets are alike
        if isinstance(target, str | None) and (action, None) in decided and (action, target) in decided:
            # The short way, for the many rows of a list.
            return decided[action, None] is None and decided[action, target] is None
        try:
            await self.demand(action, target)
        except (ForbiddenError, NotOfferedError):
            return False
        return True

    async def may_now(self, action: Action, name: str | None = None) -> bool:
        """Tell whether the caller may do this, in general or to jobs of a name. A hook that raises denies."""
        try:
            return await self.may(action, name)
        except HookFailedError as error:
            logger.error("%s raised, so a live stream ends", error.detail, exc_info=error)
            return False

    async def _ask(self, action: Action, target: Target | None = None) -> None:
        """Ask the hook; only True allows: one that forgets its `return` denies."""
        if self.setup.authorize is None:
            return
        access = Access(
            action=action,
            actor=self.caller.actor,
            request=self.caller.request,
            job=target if isinstance(target, Job) else None,
            filter=_named(target)
            if isinstance(target, str)
            else target
            if isinstance(target, JobFilter)
            else None,
        )
        try:
            answer = self.setup.authorize(access)
            allowed = await answer if isawaitable(answer) else answer
        except Exception as error:
            raise HookFailedError("authorize") from error
        if allowed is not True:
            raise denied(action)

    async def shared(self, question: Hashable, read: Callable[[], Awaitable[T]], *, keep: Keep = KEPT) -> T:
        """Read what others may have asked for as well."""
        with surface_errors():
            return await self.setup.looks.share(question, read, keep=keep)

    async def alone(self, read: Callable[[], Awaitable[T]]) -> T:
        """Read for this caller alone."""
        with surface_errors():
            return await self.setup.looks.alone(read)

    async def read(self, method: Callable[P, Awaitable[T]], *args: P.args, **how: P.kwargs) -> T:
        """Read with a method of the Monque, for this caller alone."""
        return await self.alone(self._within(method, args, how))

    async def share(self, method: Callable[P, Awaitable[T]], *args: P.args, **how: P.kwargs) -> T:
        """The same, for all who ask the same within a second."""
        return await self.share_for(KEPT, method, *args, **how)

    async def share_for(
        self, keep: Keep, method: Callable[P, Awaitable[T]], *args: P.args, **how: P.kwargs
    ) -> T:
        """The same, for all who ask the same within so long."""
        question = getattr(method, "__name__", ""), repr(args), repr(how)
        return await self.shared(question, self._within(method, args, how), keep=keep)

    def _within(
        self, method: Callable[..., Awaitable[T]], args: tuple[Any, ...], how: Mapping[str, Any]
    ) -> Callable[[], Awaitable[T]]:
        return partial(method, *args, **{**how, "max_time": self.max_time})

    async def job(self, job_id: Any) -> Job[Any] | None:
        """The job with this id; None if there is none."""
        return await self.read(self.monque.get_job, job_id)

    @asynccontextmanager
    async def audited(self, draft: Draft, *, only_failures: bool = False) -> AsyncIterator[Draft]:
        """Write what is done within to the trail, however it ends, and let nobody see what was before."""
        try:
            with surface_errors():
                yield draft
        except Problem as error:
            recorded = self._record(
                draft, "refused" if isinstance(error, ForbiddenError) else "failed", error
            )
            if isinstance(error, DatabaseAwayError):
                self.setup.go_on(recorded)  # the trail is away, too: the caller need not wait for it
            else:
                await recorded
            if isinstance(error, KeyTakenError) and (
                self.redact.own_hook_of(draft.name) or not await self.may(Action.PAYLOAD, draft.name)
            ):
                raise error.discreet from None
            raise
        except Exception:
            await self._record(draft, "failed")
            raise
        else:
            if not only_failures and not draft.is_empty:
                await self._record(draft, "done")
        finally:
            if not only_failures:
                self.setup.looks.drop()

    async def _record(self, draft: Draft, outcome: Outcome, error: Problem | None = None) -> None:
        shared: dict[str, Any] = {
            "actor": self.caller.actor.name,
            "via": "web",
            "action": draft.action,
            "outcome": outcome,
            "job_id": draft.job_id,
            "name": draft.name,
            "count": draft.count,
            "note": " ".join(filter(None, (draft.note, _told(error)))) or None,
        }
        await self.monque.record_action(
            **shared,
            filter=draft.filter,
            errors=draft.errors,
            before=draft.before,
            after=draft.after,
            address=self.caller.address,
            request_id=self.caller.request_id,
        )
        # Let other operators see it. A refusal changed nothing, and anybody can cause one.
        if outcome != "refused":
            self.setup.pulse.announce(**shared)


def name_of(thing: Named) -> Target | None:
    """The question about something in a list: its name; the job itself if others gave it an odd one."""
    name = thing.name
    return name if name is None or is_text(name) else thing if isinstance(thing, Job) else str(name)


def _named(name: str) -> JobFilter:
    """The jobs of a name; of one that no filter can have, which others stored, all of them."""
    try:
        return JobFilter(name=name)
    except ConfigurationError:
        return JobFilter()


def seldom(took: timedelta) -> timedelta:
    """The time for which a count is kept that took so long: counting may take a tenth of all time at most."""
    return max(_COUNTS_KEPT, _COUNTS_SHARE * took)


def _told(error: Problem | None) -> str | None:
    """Return the trail's text for an error: no key, and nothing that was sent, which may be a payload."""
    if isinstance(error, BadRequestError):
        return "What was sent cannot be used."
    return None if error is None else (error.discreet if isinstance(error, KeyTakenError) else error).detail
