"""The operator's side of schedules: look at them, edit, pause, resume, trigger and remove them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from monque._api.enqueue import encoded_data
from monque._api.jobs import Opened, reading
from monque._ops import ops
from monque._store.document import Document, status_of
from monque._store.job import to_job
from monque._store.schedules import to_schedule
from monque._store.store import Store
from monque._values.errors import JobNotFoundError, driver_errors
from monque._values.events import JobCancelled, ScheduleEnded, SchedulePaused, ScheduleResumed
from monque._values.job import Job
from monque._values.schedule import Schedule
from monque._values.status import JobStatus


class ScheduleManagement(Opened):
    """Methods that find a schedule by its name and key; `Monque` has them all."""

    async def list_schedules(
        self, *, name: str | None = None, max_time: timedelta | None = None
    ) -> list[Schedule]:
        """The schedules that wait or run, of one job name or of all, sorted by name and key.

        Those that were stored without a unique key, as only other implementations do, are not among them.

        Examples:
            >>> for schedule in await monque.list_schedules():
            ...     print(schedule.name, schedule.state, schedule.next_run_at)
        """
        store = self._store()
        with reading("read the schedules", max_time):
            found = await ops.schedules.list_all(store, name)
        return [_shown(document, store) for document in found]

    async def get_schedule(
        self, name: str, unique_key: str | None = None, *, max_time: timedelta | None = None
    ) -> Schedule:
        """The schedule of this job name and key; without a key, the one whose key is the name.

        Raises:
            JobNotFoundError: There is none, or it has ended.
        """
        store = self._store()
        with reading("read the schedule", max_time):
            return _shown(await ops.schedules.find(store, name, unique_key), store)

    async def edit_schedule(
        self,
        name: str,
        unique_key: str | None = None,
        *,
        cron: str | timedelta | None = None,
        timezone: str | None = None,
        data: Any = ...,
    ) -> Schedule:
        """Give a schedule another expression, interval, zone or payload; what is left out stays as it is.

        While it runs, a change takes effect after that run. A call of `schedule` in a program that starts
        later brings back what that declares.

        Args:
            name: The job name.
            unique_key: Its key; without one, that which is the name.
            cron: Five fields, a name such as @daily, or an interval, as in `schedule`.
            timezone: The IANA zone that the fields are meant in.
            data: The payload of its next runs.

        Raises:
            JobNotFoundError: There is no such schedule.
            InvalidCronError: The expression cannot be used; nothing is changed.
            ConfigurationError: There is no such zone, or the interval is too short.
            PayloadError: The data cannot be stored, or does not fit what the worker expects.

        Examples:
            >>> await monque.edit_schedule("report", cron="0 8 * * MON-FRI")
        """
        store = self._store()
        payload = {} if data is ... else {"data": encoded_data(data, name, self._workers, self._options)}
        with driver_errors("change the schedule"):
            after = await ops.schedules.edit(
                store, name, unique_key, cron=cron, timezone=timezone, payload=payload
            )
        schedule = _shown(after, store)
        self._processing.wake([after])
        if status_of(after) is JobStatus.COMPLETED:
            self._bus.emit(ScheduleEnded(schedule=schedule))
        return schedule

    async def pause_schedule(self, name: str, unique_key: str | None = None) -> Schedule:
        """Let a schedule wait until it is resumed; a run in progress goes on to its end.

        It survives restarts and further calls of `schedule`. Pausing it again changes nothing.

        Raises:
            JobNotFoundError: There is no such schedule.

        Examples:
            >>> await monque.pause_schedule("poll-mailbox")
        """
        store = self._store()
        with driver_errors("pause the schedule"):
            after, is_new = await ops.schedules.pause(store, name, unique_key)
        schedule = _shown(after, store)
        if is_new:
            self._bus.emit(SchedulePaused(schedule=schedule))
        return schedule

    async def resume_schedule(self, name: str, unique_key: str | None = None) -> Schedule:
        """Let a paused schedule go on with its next time from now; times that passed are not made up for.

        If no time is left, the schedule is completed. One that is not paused stays as it is.

        Raises:
            JobNotFoundError: There is no such schedule.
        """
        store = self._store()
        with driver_errors("resume the schedule"):
            after, is_new = await ops.schedules.resume(store, name, unique_key)
        schedule = _shown(after, store)
        if is_new:
            self._processing.wake([after])
            self._bus.emit(ScheduleResumed(schedule=schedule))
            if status_of(after) is JobStatus.COMPLETED:
                self._bus.emit(ScheduleEnded(schedule=schedule))
        return schedule

    async def trigger_schedule(self, name: str, unique_key: str | None = None) -> Job[Any]:
        """Let a schedule run now, beside its times, which stay as they are; also if it is paused.

        If it runs at the moment, it runs once more when that run has ended: its runs never overlap. A
        schedule with `as_jobs` stores one extra job; if it must not overlap with one that is active, that one
        is returned.

        Returns:
            The job that runs: the schedule's own, or the extra one.

        Raises:
            JobNotFoundError: There is no such schedule.

        Examples:
            >>> await monque.trigger_schedule("report")
        """
        store = self._store()
        with driver_errors("trigger the schedule"):
            after = await ops.schedules.trigger(store, name, unique_key)
        self._processing.wake([after])
        return to_job(after, store.read)

    async def unschedule(self, name: str, unique_key: str | None = None) -> bool:
        """Remove a schedule: it is cancelled. If it runs, it is cancelled after that run, however that ends.

        Jobs that it has stored with `as_jobs` stay. To stop a run in progress, use
        `cancel_job(..., running=True)`.

        Returns:
            False if there is no such schedule.
        """
        store = self._store()
        with driver_errors("remove the schedule"):
            try:
                after = await ops.schedules.unschedule(store, name, unique_key)
            except JobNotFoundError:
                return False
        if status_of(after) is JobStatus.CANCELLED:
            self._bus.emit(JobCancelled(job=to_job(after, store.read)))
        return True


def _shown(document: Document, store: Store) -> Schedule:
    return to_schedule(document, store.clock.now())
