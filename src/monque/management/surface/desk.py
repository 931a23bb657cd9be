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
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from inspect import isawaitable
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypeVar

from monque import BulkResult, Job, JobFilter, Monque, Schedule
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

T = TypeVar("T")
Target: TypeAlias = Job[Any] | JobFilter
Outcome: TypeAlias = Literal["done", "refused", "failed"]

logger = logging.getLogger("monque.management")


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
        if action not in caller.decided:
            caller.decided[action] = await self._refusal(caller, action)
        if (refused := caller.decided[action]) is not None:
            raise refused
        if target is not None:
            await self._ask(caller, action, target)

    async def _refusal(self, caller: Caller, action: Action) -> SurfaceError | None:
        refused = refusal(
            action,
            may=caller.actor.may,
            read_only=self.read_only,
            supported=self.supported,
            allow_enqueue=self.allow_enqueue,
        )
        if refused is None:
            try:
                await self._ask(caller, action)
            except ForbiddenError as error:
                return error
        return refused

    async def _may(self, caller: Caller, action: Action, target: Target | None = None) -> bool:
        """Whether the caller may do this."""
        try:
            await self._demand(caller, action, target)
        except (ForbiddenError, NotOfferedError):
            return False
        return True

    async def may_still(self, caller: Caller, action: Action) -> bool:
        """Whether the caller may do this now, whatever was decided before. A hook that raises denies."""
        try:
            return await self._may(replace(caller, decided={}), action)
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
            filter=target if isinstance(target, JobFilter) else None,
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
            if isinstance(error, KeyTakenError) and not await self._may(caller, Action.PAYLOAD):
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


def _told(error: SurfaceError | None) -> str | None:
    """What the trail says of an error: no key, and nothing that was sent, which may be a payload."""
    if isinstance(error, BadRequestError):
        return "What was sent cannot be used."
    return None if error is None else (error.discreet if isinstance(error, KeyTakenError) else error).detail
