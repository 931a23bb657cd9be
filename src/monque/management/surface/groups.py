"""What other parts of the surface need to know of groups of failures."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from monque import ConfigurationError, FailedJob, Job, JobFilter
from monque.management.actions import Action
from monque.management.actor import Caller
from monque.management.errors import BeingPreparedError, NotFoundError, NotOfferedError
from monque.management.failures import Group, grouped, within, without_names
from monque.management.selection import Selected
from monque.management.surface.hiding import Hiding

# How long the newest failures serve all who group them. Twice as long would show a stale group after a
# release; half would group 10,000 rows twice as often for the same numbers.
_ROWS_KEPT = timedelta(seconds=2)
# An index is not dropped or made often.
_OFFER_KEPT = timedelta(seconds=30)

_PREPARING = (
    "The index of failures is being prepared. In a large collection that takes minutes; then failures are "
    "listed here."
)
_MISSING = (
    'This collection has no index for failures: begin the use `failures` (Options(uses=("failures",)), or '
    "monque indexes --create --for failures)."
)


class Groups(Hiding):
    """The newest failures, as groups."""

    _is_preparing = False

    async def prepare(self) -> None:
        """Begin the use that lists of failures rely on. To build its index may take long.

        Raises:
            MonqueError: The index cannot be made.
        """
        self._is_preparing = True
        try:
            await self.monque.begin_use("failures")
        finally:
            self._is_preparing = False

    async def _read_failures(self, name: str | None) -> list[FailedJob]:
        try:
            return await self.monque.recent_failures(
                name=name, limit=self.limits.window, max_time=self._max_time
            )
        except ConfigurationError as error:
            if self._is_preparing:
                raise BeingPreparedError(_PREPARING) from error
            raise NotOfferedError(_MISSING) from error

    async def _groups(
        self,
        caller: Caller,
        name: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[Group]:
        """The newest failures in groups, the largest first, without names that the caller may not read."""
        groups = await self._shared(("groups", name), lambda: self._read_groups(name), keep=_ROWS_KEPT)
        if self._authorize is not None:
            names = {row.name for group in groups for row in group.rows}
            refused = {each for each in names if not await self._may(caller, Action.READ, each)}
            groups = without_names(groups, refused)
        return groups if since is None else within(groups, since, until)

    async def _read_groups(self, name: str | None) -> list[Group]:
        # In a thread: ten thousand different texts take some hundred milliseconds.
        return await asyncio.to_thread(grouped, await self._read_failures(name))

    async def _lists_failures(self) -> bool:
        """Tell whether there is an index of failures, or will be soon."""

        async def look() -> bool:
            try:
                await self.monque.recent_failures(limit=1, max_time=self._max_time)
            except ConfigurationError:
                return False
            return True

        return self._is_preparing or await self._shared("lists_failures", look, keep=_OFFER_KEPT)

    async def _group(
        self,
        caller: Caller,
        fingerprint: str,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Group:
        for group in await self._groups(caller, None, since, until):
            if group.shape.fingerprint == fingerprint:
                return group
        raise NotFoundError(f"No job among the newest {self.limits.window:,} failures has this fingerprint.")

    async def _ids_of_group(self, caller: Caller, selected: Selected) -> list[Any]:
        """The ids of a group, the newest failure first; of one name, if the filter has one."""
        assert selected.fingerprint is not None  # noqa: S101 - checked by the callers
        try:
            group = await self._group(caller, selected.fingerprint)
        except NotOfferedError:
            raise
        except NotFoundError:
            return []
        name = selected.filter.name
        return [row.id for row in group.rows if name is None or row.name == name]

    async def _with_group(self, caller: Caller, selected: Selected) -> JobFilter | None:
        """The filter, with the ids of the group if one is meant; None if that has no job."""
        if selected.fingerprint is None:
            return selected.filter
        ids = set(await self._ids_of_group(caller, selected))
        if selected.filter.ids is not None:
            ids &= set(selected.filter.ids)
        return replace(selected.filter, ids=list(ids)) if ids else None

    async def _of_ids(
        self,
        ids: Sequence[Any],
        filter: JobFilter = JobFilter(),  # noqa: A002 - as the core calls it
        *,
        payload_limit: int,
    ) -> list[Job[Any]]:
        page = await self._alone(
            lambda: self.monque.list_jobs(
                replace(filter, ids=list(ids)),
                limit=len(ids),
                payload_limit=payload_limit,
                max_time=self._max_time,
            )
        )
        return page.jobs
