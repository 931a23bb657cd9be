"""The last minutes before the opening: what the plan says of these seconds, as documents. Without I/O."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from heapq import heapreplace
from operator import itemgetter
from random import Random
from typing import Any, TypeAlias

from bson import Int64, ObjectId

from monque import Histogram

from .catalog import BEFORE, BY_NAME, INSTANCES, OPTIONS, PAST, Payload, Work
from .plan import Arrival, Fate, arrivals, courier_of, fate, picked_up_after

Document: TypeAlias = dict[str, Any]
Fates: TypeAlias = Callable[[int], Fate]

MINUTE = timedelta(minutes=1)
_PICK_UP = timedelta(milliseconds=4)
# The replay begins earlier than its first minute, so that orders are under way then, which take that long.
_WARM_UP = 2 * MINUTE
_NEVER = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


@dataclass(slots=True)
class Counts:
    """The numbers of one job name in one minute, as instances count them."""

    endings: Counter[str] = field(default_factory=Counter)
    ran: Counter[int] = field(default_factory=Counter)
    waited: Counter[int] = field(default_factory=Counter)
    ran_ms: float = 0.0
    waited_ms: float = 0.0

    def add(self, ending: str, ran: timedelta, waited: timedelta) -> None:
        """Count one run."""
        self.endings[ending] += 1
        self.ran[_bucket_of(ran)] += 1
        self.waited[_bucket_of(waited)] += 1
        self.ran_ms += ran.total_seconds() * 1000
        self.waited_ms += waited.total_seconds() * 1000

    def document(self) -> Document:
        """Return the numbers as they are stored."""
        counted = {**self.endings, "ranMs": round(self.ran_ms), "waitedMs": round(self.waited_ms)}
        histograms = {"ran": self.ran, "waited": self.waited}
        return {name: Int64(count) for name, count in counted.items() if count} | {
            name: {str(bucket): Int64(count) for bucket, count in sorted(histogram.items()) if count}
            for name, histogram in histograms.items()
            if histogram
        }


@dataclass(slots=True)
class Depth:
    """The jobs of a name that waited, and those that ran, when a minute began."""

    due: int = 0
    later: int = 0
    processing: int = 0
    oldest_ms: int = 0


class Replay:
    """The shop in the minutes before *now*: its jobs, and the numbers of each minute.

    Each name has as many slots as the instances have together; one with a limit, as many for each customer.
    A job runs when it is due and a slot is free, for the time and to the end that the plan has for it.

    Attributes:
        ended: The jobs that have ended.
        open: The jobs that wait or run at *now*, as if all of them waited.
        running: Those of them that run, and since when.
        numbers: By minute and name.
        depths: By minute and name.
    """

    def __init__(self, seed: int, now: datetime) -> None:
        self.ended: list[Document] = []
        self.open: list[Document] = []
        self.running: dict[ObjectId, datetime] = {}
        self.numbers: defaultdict[tuple[datetime, str], Counts] = defaultdict(Counts)
        self.depths: defaultdict[tuple[datetime, str], Depth] = defaultdict(Depth)
        self.begin = minute_of(now) - PAST
        self._seed, self._now = seed, now
        self._dice = Random(f"{seed}/replay")  # noqa: S311 - made up, not a secret
        self._free: dict[tuple[str, str | None], list[datetime]] = {}
        self._taken: dict[str, datetime] = {}
        for due, came, arrival in sorted(self._arrivals(), key=itemgetter(0)):
            if arrival.key is None or self._taken.get(arrival.key, came) <= came:
                self._live(arrival, came, due)
        self.ended = [job for job in self.ended if job["updatedAt"] >= self.begin]
        for of_minutes in (self.numbers, self.depths):
            for key in [key for key in of_minutes if key[0] < self.begin]:
                del of_minutes[key]

    def _arrivals(self) -> Iterator[tuple[datetime, datetime, Arrival]]:
        for second in range(-int((self._now - self.begin + _WARM_UP).total_seconds()), 0):
            for arrival in arrivals(self._seed, second):
                came = self._now + timedelta(seconds=second + self._dice.random())
                yield came + timedelta(seconds=arrival.delay), came, arrival

    def _live(self, arrival: Arrival, came: datetime, due: datetime) -> None:
        work, number = BY_NAME[arrival.name], arrival.payload["number"]
        job = stored_job(work, arrival.payload, due, self._dice) | {
            "_id": made_up_id(came, self._dice),
            "createdAt": came,
            "updatedAt": came,
            **({"uniqueKey": arrival.key} if arrival.key else {}),
            **({"priority": arrival.priority} if arrival.priority else {}),
        }
        if work.name == "fulfil-order":
            ended = self._fulfil(job, came)
        else:
            self._count_depths(work.name, came, due, "later")
            ended = self._work_off(
                work, job, due, lambda attempt: fate(self._seed, work.name, number, attempt, BEFORE)
            )
        if arrival.key is not None:
            self._taken[arrival.key] = ended or _NEVER

    def _work_off(self, work: Work, job: Document, due: datetime, fates: Fates) -> datetime | None:
        """Run a job until it has ended; the time of its end, None if it is not there yet."""
        free = self._slots(work, job)
        while due <= self._now and free:
            began = max(due, free[0]) + _PICK_UP
            self._count_depths(work.name, due, began, "due")
            if began > self._now:
                break
            attempt = job.get("attempt", 0) + 1
            what = fates(attempt)
            ended = began + timedelta(seconds=what.seconds)
            heapreplace(free, ended)
            self._count_depths(work.name, began, ended, "processing")
            if ended > self._now:
                self.running[job["_id"]] = began
                break
            is_last = attempt == work.attempts
            ending = "completed" if what.error is None else "failed" if is_last else "retried"
            self.numbers[minute_of(ended), work.name].add(ending, ended - began, began - due)
            job |= {"attempt": attempt, "updatedAt": ended}
            if what.error is None:
                job |= {"status": "completed", "startedAt": began, "finishedAt": ended, **_result(work)}
            else:
                job |= failed_attempt(work, job, what.error, began, ended, self._dice)
                job["status"] = "failed" if is_last else "pending"
            if ending != "retried":
                self.ended.append(job)
                return ended
            due = job["nextRunAt"] = ended + OPTIONS.base_retry_interval * 2**attempt
        if not free:
            self._count_depths(work.name, due, self._now, "due")
        self.open.append(job)
        return None

    def _slots(self, work: Work, job: Document) -> list[datetime]:
        """The slots that a job may take, as the times from which they are free."""
        count, customer = work.slots * INSTANCES, None
        if work.limit:
            count, customer = work.limit, job["data"]["customer"]
        return self._free.setdefault((work.name, customer), [self.begin - _WARM_UP] * count)

    def _fulfil(self, job: Document, came: datetime) -> datetime | None:
        """Let an order go as far as it is: what `orders.py` does with it."""
        order, steps, work = job["data"], [], BY_NAME["fulfil-order"]
        charged = came + timedelta(milliseconds=310)
        if charged > self._now:
            self.open.append(job)
            return None
        steps.append(_step("charge", charged, 300, f"payment-{order['number']}"))
        label = f"{job['_id']}/0/pack"
        items = [self._packed(job["_id"], label, at, item, charged) for at, item in enumerate(order["items"])]
        packing = {"n": "pack", "k": "jobs", "at": charged, "batch": label, "ms": 306, "jobs": len(items)}
        if None in items:
            self._wait(job, [*steps, packing], charged, "batch", label)
            return None
        packed = max(filter(None, items))
        is_whole = "lamp" not in order["items"]
        outcomes = ["c" if item != "lamp" else "f" for item in order["items"]]
        steps.append(packing | {"over": packed, "v": "".join(outcomes)})
        if not is_whole:
            ended = packed + timedelta(milliseconds=210)
            steps.append(_step("refund", ended, 200, f"payment-{order['number']} is returned"))
            return self._end(work, job, steps, ended, "refunded")
        picked_up = came + timedelta(seconds=picked_up_after(order))
        if (reminded := packed + timedelta(seconds=45)) < picked_up:
            steps.append(_signal("picked-up", packed, reminded, reminded))
            said = f"asked where the courier of {order['number']} is"
            steps.append(_step("remind", reminded + timedelta(milliseconds=110), 100, said))
            waits = _signal("picked up late", reminded + timedelta(milliseconds=120), None) | {"ms": 116}
        else:
            waits = _signal("picked-up", packed, reminded)
        if picked_up > self._now:
            if reminded <= self._now < reminded + timedelta(seconds=1) or packed > self._now:
                waits, steps = _signal("picked-up", packed, reminded), steps[:2]
            self._wait(job, [*steps, waits], waits["at"], "signal", "picked-up", waits.get("until"))
            return None
        steps.append(waits | {"over": picked_up, "v": courier_of(order)})
        cooled = picked_up + timedelta(seconds=20)
        rest = {"n": "cool off", "k": "sleep", "at": picked_up, "ms": 4, "until": cooled}
        if cooled > self._now:
            self._wait(job, [*steps, rest], picked_up, "time", None, cooled)
            return None
        ended = cooled + timedelta(milliseconds=110)
        steps += [rest, _step("ask for a review", ended, 100, f"mail to {order['customer']}")]
        return self._end(work, job, steps, ended, f"taken by {courier_of(order)}")

    def _packed(self, order: ObjectId, label: str, at: int, item: str, stored: datetime) -> datetime | None:
        work = BY_NAME["pack-item"]
        job = stored_job(work, {"item": item}, stored, self._dice) | {
            "batch": label,
            "parent": {"id": order, "step": "pack", "at": at},
            "policy": {"keepResult": True},
        }
        trouble = work.trouble
        assert trouble is not None  # noqa: S101 - the catalog has it
        error = trouble.raised(at) if item == "lamp" else None
        return self._work_off(work, job, stored, lambda _attempt: Fate(work.seconds[0], error))

    def _wait(
        self,
        job: Document,
        steps: list[Document],
        since: datetime,
        why: str,
        key: str | None,
        until: datetime | None = None,
    ) -> None:
        parked = {"why": why, "since": since} | ({} if key is None else {"key": key})
        self._count_depths(job["name"], since, self._now, "later")
        self.open.append(
            job
            | {"steps": steps, "parked": parked, "nextRunAt": until or _NEVER, "updatedAt": since}
            | {"attempt": sum(step["k"] != "step" for step in steps)}
        )

    def _end(
        self, work: Work, job: Document, steps: list[Document], ended: datetime, result: str
    ) -> datetime | None:
        if ended > self._now:
            self.open.append(job | {"steps": steps[:-1], "nextRunAt": steps[-2].get("until", ended)})
            return None
        self._count_depths(work.name, job["createdAt"], ended, "later")
        waits = [step for step in steps if step["k"] != "step"]
        # The time of all its runs together: those that ended in a wait, and the last one.
        last = timedelta(milliseconds=steps[-1]["ms"] + 10)
        ran = last + timedelta(milliseconds=sum(step["ms"] for step in waits))
        self.numbers[minute_of(ended), work.name].add("completed", ran, _PICK_UP)
        self.ended.append(
            job
            | {"status": "completed", "steps": steps, "attempt": 1 + len(waits), "result": result}
            | {"nextRunAt": ended - last, "startedAt": ended - ran, "finishedAt": ended, "updatedAt": ended}
        )
        return ended

    def _count_depths(self, name: str, since: datetime, until: datetime, kind: str) -> None:
        """Count a job in each minute that begins while it is in this state."""
        minute = minute_of(since) + MINUTE
        while minute < min(until, self._now):
            depth = self.depths[minute, name]
            setattr(depth, kind, getattr(depth, kind) + 1)
            if kind == "due":
                depth.oldest_ms = max(depth.oldest_ms, int((minute - since).total_seconds() * 1000))
            minute += MINUTE


def failed_attempt(
    work: Work, job: Document, error: Exception, began: datetime, ended: datetime, dice: Random
) -> Document:
    """Return the fields of a job that an attempt which failed changes."""
    kind, message, attempt = type(error).__name__, str(error), len(job.get("history", ())) + 1
    entry = {
        "attempt": attempt,
        "by": f"shop-{dice.randint(1, INSTANCES)}",
        "outcome": "failed" if attempt == work.attempts else "retried",
        "error": kind,
        "message": message,
        "startedAt": began,
        "finishedAt": ended,
        "trace": _trace(work, kind, message),
    }
    return {
        "attempt": attempt,
        "failCount": attempt,
        "failReason": f"{kind}: {message}",
        "history": [*job.get("history", ()), entry],
    }


def stored_job(work: Work, payload: Payload, due: datetime, dice: Random) -> Document:
    """Return the fields that every job has, as they are while it waits."""
    return {
        "_id": made_up_id(due, dice),
        "name": work.name,
        "data": payload,
        "status": "pending",
        "nextRunAt": due,
        "failCount": 0,
        "createdAt": due,
        "updatedAt": due,
        "policy": {"maxAttempts": work.attempts},
    }


def made_up_id(created: datetime, dice: Random) -> ObjectId:
    """An id with its time in it, as the driver makes them, but the same one for the same seed."""
    return ObjectId(int(created.timestamp()).to_bytes(4, "big") + dice.randbytes(8))


def minute_of(moment: datetime) -> datetime:
    """Return the minute in which a moment lies."""
    return moment.replace(second=0, microsecond=0)


def _bucket_of(duration: timedelta) -> int:
    return Histogram.bucket_of(duration.total_seconds() * 1000)


def _result(work: Work) -> Document:
    return {"result": {"handled": work.name, "release": BEFORE}} if work.keeps_result else {}


def _step(name: str, at: datetime, milliseconds: int, value: object) -> Document:
    return {"n": name, "k": "step", "at": at, "ms": milliseconds, "v": value}


def _signal(name: str, at: datetime, until: datetime | None, over: datetime | None = None) -> Document:
    found = {"n": name, "k": "signal", "at": at, "ms": 4, "until": until, "over": over}
    return {key: value for key, value in found.items() if value is not None}


def _trace(work: Work, kind: str, message: str) -> str:
    function = work.name.replace("-", "_")
    return (
        f'  File "/srv/shop/jobs.py", line 88, in {function}\n'
        f"    await {function.split('_')[0]}(job.data)\n"
        f"{kind}: {message}"
    )
