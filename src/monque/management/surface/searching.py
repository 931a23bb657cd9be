"""The search of the palette, and who is asking."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from bson import ObjectId

from monque import Job, JobFilter, Schedule, __version__
from monque.management.actions import Action
from monque.management.actor import Caller
from monque.management.errors import ForbiddenError, SurfaceError
from monque.management.job_view import id_text
from monque.management.ops import OpsActor, OpsFound, OpsMe, OpsSearch, OpsSearchQuery
from monque.management.surface.overview import Overview
from monque.management.values import iso, milliseconds

_MOST_EACH = 10
# Seconds that a search may take: it is asked while somebody types.
_BUDGET = 0.15


class Searching(Overview):
    """`/search` and `/me`."""

    async def ops_search(self, caller: Caller, query: OpsSearchQuery) -> OpsSearch:
        """`GET /search?q=`: what is not found in time is left out."""
        await self._demand(caller, Action.READ)
        looks = {
            "jobs": self._search_jobs(caller, query.q),
            "names": self._search_names(caller, query.q),
            "schedules": self._search_schedules(caller, query.q),
            "instances": self._search_instances(query.q),
        }
        tasks = {kind: asyncio.ensure_future(look) for kind, look in looks.items()}
        done, late = await asyncio.wait(tasks.values(), timeout=_BUDGET)
        for task in late:
            task.cancel()
        failed = [task for task in done if isinstance(task.exception(), SurfaceError)]
        found = {
            kind: task.result() if task in done and task not in failed else [] for kind, task in tasks.items()
        }
        return OpsSearch(server_time=iso(self._now()), partial=bool(late or failed), **found)

    async def _search_jobs(self, caller: Caller, text: str) -> list[OpsFound]:
        """The job with this id, and active ones with this very unique key."""
        found = []
        if ObjectId.is_valid(text):
            job = await self._alone(lambda: self.monque.get_job(text, max_time=self._max_time))
            found += [] if job is None or not await self._may(caller, Action.READ, job) else [job]
        found += await self._readable(caller, await self._with_key(caller, text))
        return [
            OpsFound(
                kind="job", label=f"{job.name} {id_text(job.id)}", id=id_text(job.id), name=str(job.name)
            )
            for job in found[:_MOST_EACH]
        ]

    async def _with_key(self, caller: Caller, text: str) -> list[Job[Any]]:
        """The active jobs with this unique key, for those who may ask for it."""
        meant = JobFilter(unique_key=text, status=["pending", "processing"])
        try:
            await self._refuse_guesses(caller, meant)
        except ForbiddenError:
            return []
        page = await self._alone(
            lambda: self.monque.list_jobs(meant, limit=_MOST_EACH, payload_limit=0, max_time=self._max_time)
        )
        return page.jobs

    async def _search_names(self, caller: Caller, text: str) -> list[OpsFound]:
        rows = (await self._snapshot(caller)).rows
        return [OpsFound(kind="name", label=name, name=name) for name in _matching(rows, text)]

    async def _search_schedules(self, caller: Caller, text: str) -> list[OpsFound]:
        """By name and, for those who may see keys, by key."""
        labels: dict[str, list[Schedule]] = {}
        for each in await self._readable_schedules(caller):
            sees_key = await self._sees_key(caller, each)
            labels.setdefault(f"{each.name} {each.key}" if sees_key else each.name, []).append(each)
        found = [(label, each) for label in _matching(labels, text) for each in labels[label]]
        return [
            OpsFound(kind="schedule", label=label, id=id_text(each.id), name=each.name)
            for label, each in found[:_MOST_EACH]
        ]

    async def _search_instances(self, text: str) -> list[OpsFound]:
        instances = {each.id: each for each in await self._instances()}
        return [OpsFound(kind="instance", label=each, id=each) for each in _matching(instances, text)]

    async def ops_me(self, caller: Caller) -> OpsMe:
        """`GET /me`: who is asking, what they may do, and what there is. It needs no right."""
        shown: dict[str, Any] = {}
        if self.badge is not None:
            shown["badge"] = self.badge
        if (release := self.monque.options.release) is not None:
            shown["release"] = release
        return OpsMe(
            server_time=iso(self._now()),
            actor=OpsActor(name=caller.actor.name, details=dict(caller.actor.details)),
            actions=[action.value for action in Action if await self._may(caller, action)],
            read_only=self.read_only,
            offers=await self._offers(),
            version=__version__,
            limits=self._shown_limits(),
            title=self.title,
            links=dict(self.links),
            **shown,
        )

    async def _offers(self) -> dict[str, bool]:
        companions = self.monque.companions
        return {
            "trends": companions["trends"],
            "register": companions["register"],
            "audit": companions["audit"],
            "failures": await self._lists_failures(),
            "pause": True,
            "priorities": True,
            "attempts": self.monque.options.attempt_history > 0,
            "progress": True,
            "results": True,
            "log": True,
            "stop": True,
            "listingIndexes": self.monque.options.listing_indexes,
            "changeStreams": await self._has_change_streams(),
        }

    async def _has_change_streams(self) -> bool:
        """As instances say; without any, as the options do."""
        instances = [each for each in await self._instances() if each.alive]
        if instances:
            return any(each.change_stream == "live" for each in instances)
        return self.monque.options.change_streams

    def _shown_limits(self) -> dict[str, int]:
        limits = self.limits
        return {
            "page": limits.page,
            "body": limits.body,
            "payload": limits.payload,
            "window": limits.window,
            "tickMs": milliseconds(limits.tick),
            "queryTimeoutMs": milliseconds(limits.query_timeout),
        }


def _matching(labels: Iterable[str], text: str) -> list[str]:
    """Those that begin with the text, then those that contain it."""
    wanted = text.casefold()
    found = [label for label in sorted(labels) if wanted in label.casefold()]
    return sorted(found, key=lambda label: not label.casefold().startswith(wanted))[:_MOST_EACH]
