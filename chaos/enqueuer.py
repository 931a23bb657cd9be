"""`python -m chaos.enqueuer`: stores jobs in every way there is, and writes down which were acknowledged."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from contextlib import suppress
from datetime import timedelta
from typing import Any, Literal

from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import PyMongoError

from chaos.program import Part, opened, play
from chaos.rules import (
    ACCOUNT_NAMES,
    BATCHED,
    CALLBACK,
    CUSTOMERS,
    EVERY,
    FLEETING,
    FRAGILE,
    LIMITED,
    OPTIONS,
    ORDERS,
    PARENT,
    RULES,
    SIGNAL,
    STALL,
    UNDONE,
)
from chaos.running import declare_lines
from monque import (
    Debounce,
    Enqueued,
    Job,
    Monque,
    MonqueError,
    NewJob,
    Retry,
    ScheduleSettings,
    Unique,
)

_KEYS = 6
# An answer that takes longer than this will not come: the user gives up, and does not know.
_PATIENCE = 60.0


async def enqueue(part: Part) -> None:
    """Store jobs until told to stop."""
    enough = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, enough.set)
    monque = Monque(part.uri, options=OPTIONS)
    knows_limits = part.chance.random() < 0.5
    if knows_limits:
        declare_lines(monque, _nothing)
    await opened(monque, part)
    await Customer(part, monque, knows_limits=knows_limits).shop(enough)
    await monque.close()
    part.history.record("over")


async def _nothing(_job: Job[Any]) -> None: ...


# The call had an effect, or none, but stored no job of its own.
_NOT_STORED = (Enqueued.REPLACED, Enqueued.AGAIN, Enqueued.THROTTLED)


class _ChangedMyMindError(Exception):
    """The user changed their mind in the middle of a transaction."""


class Customer:
    """Wants jobs done."""

    def __init__(self, part: Part, monque: Monque, *, knows_limits: bool) -> None:
        self._part = part
        self._monque = monque
        self._knows_limits = knows_limits
        self._numbers = itertools.count(1)
        self._keys = itertools.count(1)
        self._key = self._own_key()
        self._signalling = set[asyncio.Task[None]]()

    async def shop(self, enough: asyncio.Event) -> None:
        """Store one thing after the other."""
        ways = [self._one, self._later, self._keyed, self._many, self._ordered, self._schedule, self._block]
        weights = [30, 10, 20, 5, 12, 2, 0.6]
        ways += [self._snoozing, self._strict, self._limited, self._expiring, self._urgent, self._returning]
        weights += [8, 10, 8, 10, 8, 8]
        ways += [self._latest, self._throttled, self._stepping]
        weights += [12, 12, 20]
        ways += [self._queueing, self._batch, self._parent, self._fragile, self._fleeting]
        weights += [30, 12, 8, 10, 8]
        await self._schedule()
        while not enough.is_set():
            [way] = self._part.chance.choices(ways, weights)
            await way()
            await asyncio.sleep(self._part.chance.uniform(0.01, 0.2))
        await asyncio.gather(*self._signalling)

    async def _one(self) -> None:
        token, name = self._token(), self._part.chance.choice(("wait", "wait", "thread", "effect"))
        self._invoke(token, "one-off", name)
        await self._acknowledged(token, self._monque.enqueue(name, self._payload(token)))

    async def _later(self) -> None:
        token, delay = self._token(), self._part.chance.uniform(0.1, 6.0)
        self._invoke(token, "delayed", "wait", delay=delay)
        storing = self._monque.enqueue("wait", self._payload(token), delay=timedelta(seconds=delay))
        await self._acknowledged(token, storing)

    async def _keyed(self) -> None:
        token, key = self._token(), f"key-{self._part.chance.randrange(_KEYS)}"
        self._invoke(token, "keyed", "keyed", key=key)
        await self._acknowledged(token, self._monque.enqueue("keyed", self._payload(token), unique_key=key))

    async def _many(self) -> None:
        tokens = [self._token() for _ in range(self._part.chance.randint(2, 15))]
        jobs = [NewJob("wait", self._payload(token)) for token in tokens]
        for token in tokens:
            self._invoke(token, "many", "wait")
        await self._all_acknowledged(tokens, self._monque.enqueue_many(jobs))

    async def _ordered(self) -> None:
        """An order and its job in one transaction, which the user may give up."""
        token, gives_up = self._token(), self._part.chance.random() < 0.3
        self._invoke(token, "transaction", "wait")
        payload = self._payload(token)

        async def order(session: AsyncClientSession) -> Job[Any]:
            orders = self._monque.database[ORDERS]
            await orders.insert_one({"_id": token}, session=session)
            job = await self._monque.enqueue("wait", payload, session=session)
            if gives_up:
                raise _ChangedMyMindError
            return job

        try:
            async with asyncio.timeout(_PATIENCE), self._monque.client.start_session() as session:
                self._ok(token, await session.with_transaction(order))
        except _ChangedMyMindError:
            self._part.history.record("abort", token=token)
        except (MonqueError, PyMongoError, TimeoutError) as error:
            self._doubt(token, error)

    async def _schedule(self) -> None:
        self._invoke("tick", "schedule", "tick", key="tick")
        storing = self._monque.schedule("* * * * *", "tick", {"token": "tick", "ms": 5})
        await self._acknowledged("tick", storing)
        kinds: dict[str, ScheduleSettings] = {
            "pulse": {},
            "spawning": {"as_jobs": True},
            "skipping": {"as_jobs": True, "overlap": "skip"},
        }
        for name, kind in kinds.items():
            self._invoke(name, "schedule", name, key=name)
            await self._acknowledged(name, self._monque.schedule(EVERY, name, {"token": name}, **kind))

    async def _block(self) -> None:
        token = self._token()
        self._invoke(token, "blocking", "block")
        await self._acknowledged(token, self._monque.enqueue("block", self._payload(token)))

    async def _snoozing(self) -> None:
        """A job that wants to run later, a few times; some want a break for their whole name."""
        token, name = self._token(), self._part.chance.choice(("wait", "thread", "resting"))
        meant: dict[str, Any] = {
            "snoozes": self._part.chance.randint(1, 3),
            "snooze": self._part.chance.uniform(0.0, 1.0),
        }
        if name == "resting":
            meant = {"snoozes": 1, "rests": self._part.chance.uniform(2.5, 4.0)}
        self._invoke(token, "snoozing", name, **meant)
        payload = {**self._payload(token), **meant}
        await self._acknowledged(token, self._monque.enqueue(name, payload))

    async def _strict(self) -> None:
        """A job with a retry policy of its own; some say themselves how they end."""
        chance, token = self._part.chance, self._token()
        ends = chance.choice((None, None, "fail", "cancel"))
        most = chance.randint(1, 4)
        self._invoke(token, "policy", "wait", max_attempts=most, ends=ends)
        meant = {
            "fails": chance.choice((0, 1, 2, 99)),
            "ends": ends,
            "retry_after": chance.choice((None, 0.1)),
        }
        waits = Retry(most, first=timedelta(milliseconds=50), limit=timedelta(seconds=1))
        storing = self._monque.enqueue("wait", {**self._payload(token), **meant}, retry=waits)
        await self._acknowledged(token, storing)

    async def _limited(self) -> None:
        """A job that takes longer than it may; some handlers do not stop when they are told to."""
        chance, token = self._part.chance, self._token()
        # A shorter limit would be over before the checker can tell a stall from a limit that came too soon.
        name, soft, most = chance.choice(("limited", "thread")), chance.uniform(2 * STALL, 3 * STALL), 2
        self._invoke(token, "limited", name, soft=soft, max_attempts=most)
        limit = timedelta(seconds=soft)
        meant = {"ms": chance.choice((5, 4000)), "fails": 0, "looks": chance.random() < 0.7}
        payload = {**self._payload(token), **meant}
        storing = self._monque.enqueue(name, payload, timeout=limit, max_attempts=most)
        await self._acknowledged(token, storing)

    async def _expiring(self) -> None:
        """A job that is worth nothing when it comes too late; of some the worker knows how late that is."""
        chance, token = self._part.chance, self._token()
        name, delay = chance.choice(("wait", "thread", "fresh")), chance.choice((0.0, 1.0))
        expires = None if name == "fresh" else chance.uniform(0.3, 5.0)
        self._invoke(token, "expiring", name, delay=delay, expires=expires)
        storing = self._monque.enqueue(
            name,
            self._payload(token),
            delay=timedelta(seconds=delay),
            expires=None if expires is None else timedelta(seconds=expires),
        )
        await self._acknowledged(token, storing)

    async def _urgent(self) -> None:
        """A job that comes before others."""
        token, name = self._token(), self._part.chance.choice(("wait", "thread"))
        self._invoke(token, "urgent", name)
        priority = self._part.chance.randint(1, 9)
        await self._acknowledged(token, self._monque.enqueue(name, self._payload(token), priority=priority))

    async def _returning(self) -> None:
        """A job whose result is kept, and which says how far it is."""
        token = self._token()
        self._invoke(token, "returning", "returning")
        storing = self._monque.enqueue("returning", self._payload(token), store_result=True)
        await self._acknowledged(token, storing)

    async def _latest(self) -> None:
        """Some calls in a row that replace what waits, or want another run after the one under way."""
        chance = self._part.chance
        for _ in range(chance.randint(1, 4)):
            token, settings = self._token(), dict[str, Any]()
            if chance.random() < 0.3:
                settings["debounce"] = Debounce(timedelta(seconds=0.2), max_wait=timedelta(seconds=1))
            self._invoke(token, "latest", "latest", key=self._key, delay=0.2 if settings else 0.0)
            payload = {**self._payload(token), "ms": chance.choice((5, 200))}
            unique = Unique(self._key, on_conflict="replace")
            storing = self._monque.enqueue("latest", payload, unique=unique, **settings)
            if not await self._acknowledged(token, storing):
                # Nobody knows when that call arrives, so it has no place among those that follow.
                self._key = self._own_key()
                return
            await asyncio.sleep(chance.choice((0.0, 0.1)))

    async def _throttled(self) -> None:
        """A call of which only one is accepted within a window."""
        token, key = self._token(), f"window-{self._part.chance.randrange(3)}"
        self._invoke(token, "throttled", "throttled", key=key)
        unique = Unique(key, window=timedelta(seconds=RULES.window))
        storing = self._monque.enqueue("throttled", self._payload(token), unique=unique)
        await self._acknowledged(token, storing)

    async def _stepping(self) -> None:
        """A job with steps, which pays, sleeps and waits; its signal comes early, in time or too late."""
        chance, token = self._part.chance, self._token()
        payer, payee = chance.sample(ACCOUNT_NAMES, 2)
        meant: dict[str, Any] = {
            "rest": chance.uniform(0.0, 1.5),
            "timeout": chance.choice((None, chance.uniform(0.2, 3.0))),
            "fails_at": chance.choice(("reserve", "pick", "wrap", "pay", "send")),
        }
        pays = {"payer": payer, "payee": payee, "amount": chance.randint(1, 100)}
        self._invoke(token, "steps", "order", key=token, **meant)
        payload = {**self._payload(token), **meant, **pays}
        await self._acknowledged(token, self._monque.enqueue("order", payload, unique_key=token))
        task = asyncio.create_task(
            self._signal(token, chance.uniform(0.0, 6.0), aborts=chance.random() < 0.3)
        )
        self._signalling.add(task)
        task.add_done_callback(self._signalling.discard)

    async def _queueing(self) -> None:
        """Some jobs at once of names with limits, most of them for one customer."""
        chance = self._part.chance
        favourite = chance.choice(CUSTOMERS)
        for _ in range(chance.randint(1, 6)):
            token, name = self._token(), chance.choice([*LIMITED])
            customer = chance.choice((favourite, favourite, chance.choice(CUSTOMERS)))
            whose = customer if LIMITED[name].by_customer else None
            self._invoke(token, "limit", name, customer=whose, knows=self._knows_limits)
            payload = {**self._payload(token), "customer": whose, "ms": chance.randint(1, 300)}
            await self._acknowledged(token, self._monque.enqueue(name, payload))

    async def _batch(self) -> None:
        """Some jobs with one label, and at last what follows them; some parts come in a second call."""
        chance, label = self._part.chance, self._token()
        for _ in range(chance.randint(1, 2)):
            tokens = [self._token() for _ in range(chance.randint(1, 8))]
            for token in tokens:
                self._invoke(token, "batch", BATCHED, batch=label)
            jobs = [NewJob(BATCHED, self._payload(token), batch=label) for token in tokens]
            if not await self._all_acknowledged(tokens, self._monque.enqueue_many(jobs)):
                return  # nobody knows whether there is such a batch
        token = self._token()
        if_failed: Literal["run", "cancel"] = "run" if chance.random() < 0.5 else "cancel"
        self._invoke(token, "batch", CALLBACK, after=label, if_failed=if_failed)
        payload = {**self._payload(token), "fails": chance.choice((0, 1))}
        storing = self._monque.enqueue(CALLBACK, payload, after_batch=label, if_failed=if_failed)
        await self._acknowledged(token, storing)

    async def _parent(self) -> None:
        """A job that waits for others."""
        token, count = self._token(), self._part.chance.randint(1, 5)
        self._invoke(token, "parent", PARENT)
        children = [self._payload(f"{token}/{place}") for place in range(count)]
        payload = {**self._payload(token), "children": children}
        await self._acknowledged(token, self._monque.enqueue(PARENT, payload))

    async def _fragile(self) -> None:
        """A job after whose failure another one is stored: the one that its worker names, or its call."""
        chance, token = self._part.chance, self._token()
        most, ends = chance.randint(1, 2), chance.choice((None, "fail"))
        self._invoke(token, "fragile", FRAGILE, max_attempts=most, ends=ends)
        payload = {**self._payload(token), "fails": chance.choice((0, 1, 99)), "ends": ends}
        own: dict[str, Any] = {"on_failure": UNDONE} if chance.random() < 0.5 else {}
        storing = self._monque.enqueue(FRAGILE, payload, max_attempts=most, **own)
        await self._acknowledged(token, storing)

    async def _fleeting(self) -> None:
        """A job that is removed when it completes."""
        token = self._token()
        self._invoke(token, "fleeting", FLEETING)
        await self._acknowledged(token, self._monque.enqueue(FLEETING, self._payload(token)))

    async def _signal(self, token: str, after: float, *, aborts: bool) -> None:
        """Send the signal that the job of this token waits for; some also in a transaction that aborts."""
        await asyncio.sleep(after)
        self._part.history.record("signal", token=token)
        try:
            async with asyncio.timeout(_PATIENCE):
                if aborts:
                    await self._give_up(token)
                there = await self._monque.signal(
                    "order", SIGNAL, {"token": token}, unique_key=token, id=token
                )
        except (MonqueError, PyMongoError, TimeoutError) as error:
            self._part.history.record("unsent", token=token, error=f"{type(error).__name__}: {error}"[:200])
        else:
            self._part.history.record("signalled", token=token, there=there)

    async def _give_up(self, token: str) -> None:
        """Send a signal in a transaction that is aborted: nobody may receive it."""
        async with self._monque.client.start_session() as session:
            await session.start_transaction()
            with suppress(MonqueError, PyMongoError):
                await self._monque.signal(
                    "order", SIGNAL, {"token": "aborted"}, unique_key=token, session=session
                )
            await session.abort_transaction()

    def _own_key(self) -> str:
        return f"{self._part.who}-{os.getpid()}-{next(self._keys)}"

    async def _acknowledged(self, token: str, storing: Any) -> bool:
        try:
            async with asyncio.timeout(_PATIENCE):
                self._ok(token, await storing)
        except (MonqueError, PyMongoError, TimeoutError) as error:
            self._doubt(token, error)
            return False
        return True

    async def _all_acknowledged(self, tokens: list[str], storing: Any) -> bool:
        try:
            async with asyncio.timeout(_PATIENCE):
                stored = await storing
        except (MonqueError, PyMongoError, TimeoutError) as error:
            for token in tokens:
                self._doubt(token, error)
            return False
        for token, job in zip(tokens, stored, strict=True):
            self._ok(token, job)
        return True

    def _token(self) -> str:
        return f"{self._part.who}-{os.getpid()}-{next(self._numbers)}"

    def _payload(self, token: str) -> dict[str, Any]:
        """Most jobs are short and go well; some take long, some fail, few always do."""
        chance = self._part.chance
        ms = chance.choices((chance.randint(1, 30), chance.randint(500, 3000)), (9, 1))[0]
        fails = chance.choices((0, 1, 3, 99), (80, 12, 5, 3))[0]
        return {"token": token, "ms": ms, "fails": fails, "looks": chance.random() < 0.5}

    def _invoke(
        self, token: str, how: str, name: str, *, key: str | None = None, delay: float = 0.0, **asked: Any
    ) -> None:
        facts = {"how": how, "name": name, "key": key, "delay": delay, **asked}
        self._part.history.record("invoke", token=token, **facts)

    def _ok(self, token: str, job: Job[Any]) -> None:
        if job.enqueued in _NOT_STORED:
            self._part.history.record("called", token=token, job=str(job.id), own=False, how=job.enqueued)
            return
        own = job.data["token"] == token
        run_at = job.next_run_at.timestamp() if job.next_run_at else 0.0  # a paused schedule has no time
        self._part.history.record("ok", token=token, job=str(job.id), own=own, run_at=run_at)

    def _doubt(self, token: str, error: BaseException) -> None:
        self._part.history.record("doubt", token=token, error=f"{type(error).__name__}: {error}"[:200])


if __name__ == "__main__":
    play(enqueue)
