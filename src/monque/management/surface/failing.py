"""Failures by fingerprint: groups, one group, and the canary."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from monque import Instance, JobFilter, JobStatus
from monque.management.actions import Action
from monque.management.actor import Caller
from monque.management.errors import BadRequestError, NotFoundError
from monque.management.failures import Group, differing_keys
from monque.management.fingerprint import Shape
from monque.management.job_view import id_text
from monque.management.ops import (
    OpsCanary,
    OpsFailuresQuery,
    OpsGroup,
    OpsGroupAnswer,
    OpsGroupList,
    OpsMark,
    OpsNoteBody,
    OpsReport,
    OpsWindowQuery,
)
from monque.management.redact import MASK
from monque.management.releases import releases
from monque.management.report import report
from monque.management.surface.bulk import Bulk
from monque.management.surface.desk import Deed
from monque.management.values import iso
from monque.management.windows import WINDOWS

# Groups in one answer: nobody reads further, and a group of one has little to say.
_MOST_GROUPS = 200
# How often the canary meets a newest job that somebody else has retried meanwhile.
_CANARY_TRIES = 3
# The question that all who read the register share, and how long its answer is kept: the register changes
# with each heartbeat; releases do not.
REGISTER = "instances"
_REGISTER_KEPT = timedelta(seconds=2)


class Failing(Bulk):
    """`/failures`."""

    async def ops_failures(self, caller: Caller, query: OpsFailuresQuery) -> OpsGroupList:
        """`GET /failures`: the largest group first."""
        await self._demand(caller, Action.READ)
        await self._demand(caller, Action.READ, JobFilter(name=query.name, status="failed"))
        groups = await self._shown_groups(caller, query, query.name)
        looked, capped = (groups[0].looked, groups[0].capped) if groups else (0, False)
        return OpsGroupList(
            server_time=iso(self._now()), groups=groups[:_MOST_GROUPS], looked=looked, capped=capped
        )

    async def ops_failure(self, caller: Caller, fingerprint: str, query: OpsWindowQuery) -> OpsGroupAnswer:
        """`GET /failures/{fingerprint}`: one group, with samples side by side."""
        await self._demand(caller, Action.READ)
        for shown in await self._shown_groups(caller, query, None):
            if shown.fingerprint == fingerprint:
                break
        else:
            raise NotFoundError("No failure of this window has this fingerprint.")
        group = await self._group(caller, fingerprint, *self._between(query))
        found = await self._of_ids(group.samples, payload_limit=self.limits.payload)
        jobs = sorted(found, key=lambda job: group.samples.index(job.id))
        more: dict[str, Any] = {}
        if await self._may(caller, Action.PAYLOAD):
            seen = [await self._seen(caller, job, targeted=False) for job in jobs]
            more["differing_keys"] = differing_keys([each.payload for each in seen])
        return OpsGroupAnswer(
            **shown.as_set(), server_time=iso(self._now()), samples=await self._rows(caller, jobs), **more
        )

    def _between(self, query: OpsWindowQuery) -> tuple[datetime, datetime]:
        until = query.to or self._now()
        since = query.from_ or self._now() - WINDOWS[query.window]
        if since >= until:
            raise BadRequestError("from must be before to", errors=[("from", "must be before to")])
        return since, until

    async def _shown_groups(self, caller: Caller, query: OpsWindowQuery, name: str | None) -> list[OpsGroup]:
        since, until = self._between(query)
        groups = await self._groups(caller, name, since, until)
        looked = sum(group.count for group in groups)
        read = sum(group.count for group in await self._groups(caller, name))
        marks = releases(await self._instances())
        told = await self._with_sentence(caller, groups)
        return [
            self._shown_group(
                group,
                since=since,
                until=until,
                looked=looked,
                # The window is cut short if all failures that were read are within it.
                capped=looked == read >= self.limits.window,
                new_since=group.new_since(marks),
                hidden=group.shape not in told,
            )
            for group in groups
        ]

    async def _with_sentence(self, caller: Caller, groups: Sequence[Group]) -> set[Shape]:
        """The shapes of failures of which the caller sees the text of one at least."""
        if not await self._may(caller, Action.PAYLOAD):
            return set()
        told, unsure = set(), {}
        for group in groups:
            names = {row.name: row.id for row in group.rows}
            seen = [name for name in names if await self._may(caller, Action.PAYLOAD, name)]
            if any(name not in self.redact.by_name for name in seen):
                told.add(group.shape)
            elif seen:
                unsure[names[seen[0]]] = group.shape
        # A hook of a name decides about jobs.
        ids = list(unsure)[:_MOST_GROUPS]
        for job in await self._of_ids(ids, payload_limit=self._previewed) if ids else ():
            if await self.redact.shows_all(job, caller.actor):
                told.add(unsure[job.id])
        return told

    def _shown_group(
        self,
        group: Group,
        *,
        since: datetime,
        until: datetime,
        looked: int,
        capped: bool,
        new_since: str | None,
        hidden: bool,
    ) -> OpsGroup:
        # The sentence is part of a failure's text; the type of the error is not.
        sentence = (group.type if hidden else self._error_text(group.shape.sentence)) or MASK
        return OpsGroup(
            fingerprint=group.shape.fingerprint,
            sentence=sentence,
            type=group.type,
            count=group.count,
            share=round(group.count / looked, 4),
            names=group.names,
            first_seen=iso(group.first_seen),
            last_seen=iso(group.last_seen),
            trend=group.trend(since, until),
            sample_ids=[id_text(each) for each in group.samples],
            is_new=new_since is not None,
            looked=looked,
            capped=capped,
            **({} if new_since is None else {"new_since": new_since}),
        )

    async def ops_report(self, caller: Caller, fingerprint: str, query: OpsWindowQuery) -> OpsReport:
        """`GET /failures/{fingerprint}/report`: the group as text, with the newest traceback."""
        group = await self.ops_failure(caller, fingerprint, query)
        sample = await self.ops_job(caller, group.sample_ids[0])
        return OpsReport(server_time=iso(self._now()), text=report(group, sample))

    async def ops_canary(self, caller: Caller, fingerprint: str, body: OpsNoteBody) -> OpsCanary:
        """`POST /failures/{fingerprint}/canary`: retry the newest job of the group."""
        async with self._audited(caller, Deed(action="canary", note=body.note)) as deed:
            await self._demand(caller, Action.RETRY)
            group = await self._group(caller, fingerprint)
            job, others = await self._newest(group)
            deed.job_id, deed.name, deed.before = job.id, job.name, job
            await self._demand(caller, Action.RETRY, job)
            deed.after = after = await self.monque.retry_job(job.id)
        whole = await self._whole(caller, after)
        kept = {field: value for field, value in whole.as_set().items() if field in OpsCanary.model_fields}
        return OpsCanary(**kept, others=others)

    async def _newest(self, group: Group) -> tuple[Any, int]:
        """The newest job of the group that is still failed, and how many others there are."""
        for place, row in enumerate(group.rows[:_CANARY_TRIES]):
            job = await self._find(id_text(row.id))
            if job.status is JobStatus.FAILED:
                return job, group.count - place - 1
        raise NotFoundError("The newest jobs of this group have been retried already.")

    async def _instances(self) -> list[Instance]:
        """The register, shared by all who look."""
        return await self._shared(
            REGISTER, lambda: self.monque.instances(max_time=self._max_time), keep=_REGISTER_KEPT
        )

    async def _marks(self) -> list[OpsMark]:
        return [
            OpsMark(at=iso(mark.started_at), release=mark.release)
            for mark in releases(await self._instances())
        ]
