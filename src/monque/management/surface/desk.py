"""What every method of a surface does: decide, read in turn, write the trail, hide."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from inspect import isawaitable
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from monque import BulkResult, ConfigurationError, Job, JobFilter, Monque, QueueView, Schedule
from monque.management.actions import Action, denied, refusal
from monque.management.actor import Access, Authorize, Caller
from monque.management.errors import (
    BadRequestError,
    DatabaseAwayError,
    ForbiddenError,
    HookFailedError,
    KeyTakenError,
    NotOfferedError,
    SurfaceError,
    surface_errors,
)
from monque.management.limits import Limits
from monque.management.looks import KEPT, Looks
from monque.management.pulse import Pulse
from monque.management.redact import Redaction
from monque.management.texts import is_text

T = TypeVar("T")
N = TypeVar("N", bound="Named")
Target: TypeAlias = Job[Any] | JobFilter | str
"""The target of an action: a job, the jobs of a filter, or all jobs of a name."""
Outcome: TypeAlias = Literal["done", "refused", "failed"]

logger = logging.getLogger("monque.management")

# What is counted at most: the server walks through so many index entries in some tens of milliseconds.
MOST_COUNTED = 100_000
_COUNTS_KEPT = timedelta(seconds=5)
_COUNTS_SHARE = 10


class Named(Protocol):
    """Something that belongs to a job name, or to none."""

    @property
    def name(self) -> Any:
        """The name."""


@dataclass(slots=True, kw_only=True)
class Deed:
    """What is to be done, for the audit trail; the method that does it adds what it learns."""

    action: str
    job_id: Any = None
    job_ids: Sequence[Any] = ()
    name: str | None = None
    filter: Any = None
    count: int | None = None
    errors: int | None = None
    before: Job[Any] | Schedule | Mapping[str, Any] | None = None
    after: Job[Any] | Schedule | Mapping[str, Any] | None = None
    note: str | None = None
    is_empty: bool = False
    """Nothing was asked for, or nothing changed: the trail leaves it out."""

    def record(self, result: BulkResult) -> None:
        """Add what became of many jobs, and of which."""
        refused = {each.job_id for each in result.errors}
        self.count, self.errors = result.count + result.requested, len(result.errors)
        self.job_ids = [job_id for job_id in result.job_ids if job_id not in refused]


class Desk:
    """The base of all parts of a surface."""

    def __init__(
        self,
        monque: Monque,
        *,
        authorize: Authorize | None = None,
        read_only: bool = False,
        allow_enqueue: bool = False,
        redact: Redaction = Redaction(),
        limits: Limits = Limits(),
        title: str = "Monque",
        badge: str | None = None,
        links: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.monque = monque
        self.read_only = read_only
        self.allow_enqueue = allow_enqueue
        self.redact = redact
        self.limits = limits
        self.title = title
        self.badge = badge
        self.links = links
        self.pulse = Pulse(monque, tick=limits.tick, read_timeout=limits.query_timeout)
        self._authorize = authorize
        self._looks = Looks(at_once=limits.queries_at_once)
        # Entries of the trail that are written though nobody waits for them.
        self._recording: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """End the reads that are under way."""
        for task in self._recording:
            task.cancel()
        await self._looks.close()
        await self.pulse.close()

    async def admit(
        self, caller: Caller, action: Action, *, doing: str | None = None, job_id: str | None = None
    ) -> None:
        """Refuse a caller who may never do this, before anything is parsed or read.

        Args:
            caller: Who it is; what is decided here is not asked again for the same caller.
            action: The right that is needed.
            doing: What the trail calls it if it is refused; None leaves it out of the trail.
            job_id: The job that it is about, for the trail.

        Raises:
            ForbiddenError: They may not, or nobody may.
            NotOfferedError: The core does not offer it.
            HookFailedError: `authorize` raised.
        """
        if doing is None:
            return await self._demand(caller, action)
        async with self._audited(caller, Deed(action=doing, job_id=job_id), only_failures=True):
            await self._demand(caller, action)
        return None

    async def _demand(self, caller: Caller, action: Action, target: Target | None = None) -> None:
        """Raise unless the caller may do this: in general, and to this target."""
        await self._decide(caller, action, None)
        if isinstance(target, str):
            await self._decide(caller, action, target)
        elif target is not None:
            await self._ask(caller, action, target)

    async def _decide(self, caller: Caller, action: Action, name: str | None) -> None:
        """Ask once in a request; a page of a hundred jobs has few names."""
        if (action, name) not in caller.decided:
            caller.decided[action, name] = await self._refusal(caller, action, name)
        if (refused := caller.decided[action, name]) is not None:
            raise refused

    async def _refusal(self, caller: Caller, action: Action, name: str | None) -> SurfaceError | None:
        refused = refusal(
            action,
            may=caller.actor.may,
            read_only=self.read_only,
            supported=self.supported,
            allow_enqueue=self.allow_enqueue,
        )
        if refused is None:
            try:
                await self._ask(caller, action, name)
            except ForbiddenError as error:
                return error
        return refused

    async def _demand_for_all(self, caller: Caller, action: Action, filter: JobFilter) -> None:  # noqa: A002
        """Raise unless the caller may do this to all jobs of a filter, whatever their names are."""
        await self._demand(caller, action, filter)
        if self._authorize is None or filter.name is not None:
            return
        for name in await self._names_in(filter):
            if not await self._may(caller, action, name):
                raise ForbiddenError(
                    "You may not do this to jobs of all names: choose one.", v1_text="Action denied"
                )

    async def _names_in(self, filter: JobFilter) -> Iterable[str]:  # noqa: A002 - as the core calls it
        """The names of the jobs of a filter; at least those.

        A unique key must not be found out by what is refused: then all names count.
        """
        if filter.unique_key is None:
            counts = await self._alone(
                lambda: self.monque.job_counts(filter, limit=MOST_COUNTED, max_time=self._max_time)
            )
            if not counts.capped:
                return counts.by_name
        return [view.name for view in await self._queue_views()]

    async def _queue_views(self) -> list[QueueView]:
        return await self._shared(
            "queue_views", lambda: self.monque.queue_views(max_time=self._max_time), keep=seldom
        )

    async def _readable(self, caller: Caller, things: Iterable[N]) -> list[N]:
        """Those whose name the caller may read about; what has none is for everybody."""
        if self._authorize is None:
            return list(things)
        return [each for each in things if await self._may(caller, Action.READ, name_of(each))]

    async def _may(self, caller: Caller, action: Action, target: Target | None = None) -> bool:
        """Whether the caller may do this."""
        try:
            await self._demand(caller, action, target)
        except (ForbiddenError, NotOfferedError):
            return False
        return True

    @property
    def asks_by_name(self) -> bool:
        """Tell whether some callers may not see some job names."""
        return self._authorize is not None

    async def may(self, caller: Caller, action: Action, name: str | None = None) -> bool:
        """Tell whether the caller may do this, in general or to jobs of a name. A hook that raises denies."""
        try:
            return await self._may(caller, action, name)
        except HookFailedError as error:
            logger.error("%s raised, so a live stream ends", error.detail, exc_info=error)
            return False

    async def _ask(self, caller: Caller, action: Action, target: Target | None = None) -> None:
        """Ask the hook; only True allows: one that forgets its `return` denies."""
        if self._authorize is None:
            return
        access = Access(
            action=action,
            actor=caller.actor,
            request=caller.request,
            job=target if isinstance(target, Job) else None,
            filter=_named(target)
            if isinstance(target, str)
            else target
            if isinstance(target, JobFilter)
            else None,
        )
        try:
            answer = self._authorize(access)
            allowed = await answer if isawaitable(answer) else answer
        except Exception as error:
            raise HookFailedError("authorize") from error
        if allowed is not True:
            raise denied(action)

    @property
    def supported(self) -> Collection[Action]:
        """The actions that the core offers here."""
        return frozenset(Action)

    async def _shared(
        self,
        question: Hashable,
        read: Callable[[], Awaitable[T]],
        *,
        keep: timedelta | Callable[[timedelta], timedelta] = KEPT,
    ) -> T:
        """Read what others may have asked for as well."""
        with surface_errors():
            return await self._looks.share(question, read, keep=keep)

    async def _alone(self, read: Callable[[], Awaitable[T]]) -> T:
        """Read for this caller alone."""
        with surface_errors():
            return await self._looks.alone(read)

    @asynccontextmanager
    async def _audited(
        self, caller: Caller, deed: Deed, *, only_failures: bool = False
    ) -> AsyncIterator[Deed]:
        """Write what is done within to the trail, however it ends, and let nobody see what was before."""
        try:
            with surface_errors():
                yield deed
        except SurfaceError as error:
            recorded = self._record(
                caller, deed, "refused" if isinstance(error, ForbiddenError) else "failed", error
            )
            if isinstance(error, DatabaseAwayError):
                self._go_on(recorded)  # the trail is away, too: the caller need not wait for it
            else:
                await recorded
            if isinstance(error, KeyTakenError) and (
                self.redact.own_hook_of(deed.name) or not await self._may(caller, Action.PAYLOAD, deed.name)
            ):
                raise error.discreet from None
            raise
        except Exception:
            await self._record(caller, deed, "failed")
            raise
        else:
            if not only_failures and not deed.is_empty:
                await self._record(caller, deed, "done")
        finally:
            if not only_failures:
                self._looks.drop()

    def _go_on(self, recorded: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(recorded)
        self._recording.add(task)
        task.add_done_callback(self._recording.discard)

    async def _record(
        self, caller: Caller, deed: Deed, outcome: Outcome, error: SurfaceError | None = None
    ) -> None:
        shared: dict[str, Any] = {
            "actor": caller.actor.name,
            "via": "web",
            "action": deed.action,
            "outcome": outcome,
            "job_id": deed.job_id,
            "name": deed.name,
            "count": deed.count,
            "note": " ".join(filter(None, (deed.note, _told(error)))) or None,
        }
        await self.monque.record_action(
            **shared,
            job_ids=deed.job_ids,
            filter=deed.filter,
            errors=deed.errors,
            before=deed.before,
            after=deed.after,
            address=caller.address,
            request_id=caller.request_id,
        )
        # Let other operators see it. A refusal changed nothing, and anybody can cause one.
        if outcome != "refused":
            self.pulse.announce(**shared)

    def _now(self) -> datetime:
        return self.monque.server_time()

    @property
    def _max_time(self) -> timedelta:
        """How long the server may work on one read."""
        return self.limits.query_timeout


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


def _told(error: SurfaceError | None) -> str | None:
    """What the trail says of an error: no key, and nothing that was sent, which may be a payload."""
    if isinstance(error, BadRequestError):
        return "What was sent cannot be used."
    return None if error is None else (error.discreet if isinstance(error, KeyTakenError) else error).detail
