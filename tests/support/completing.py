"""Handlers that complete their job in their own transaction, and the accounts that they write there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pymongo.asynchronous.client_session import AsyncClientSession

from monque import Job, Monque
from support.aliases import Collection

Step = Callable[..., Awaitable[object]]


@dataclass
class Deposit:
    """The data of a job that adds to an account."""

    amount: int = 1
    account: int = 0


class Accounts:
    """Documents whose balances count the writes of handlers."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection

    async def create(self) -> None:
        """Eight of them: handlers that run at the same time conflict now and then."""
        await self.collection.insert_many([{"_id": number, "balance": 0} for number in range(8)])

    async def add(self, deposit: Deposit, session: AsyncClientSession) -> None:
        """Write with the driver that the session belongs to."""
        accounts = session.client[self.collection.database.name][self.collection.name]
        change = {"$inc": {"balance": deposit.amount}}
        await accounts.update_one({"_id": deposit.account}, change, session=session)

    async def balances(self) -> Counter[int]:
        return Counter({doc["_id"]: doc["balance"] async for doc in self.collection.find()})

    async def total(self) -> int:
        return (await self.balances()).total()


async def nothing(*_: object) -> None:
    """A step that does nothing."""


class Depositing:
    """A handler that makes its deposit in the transaction that completes its job.

    Args:
        monque: The instance that runs it.
        accounts: Where the deposit goes.
        inside: Called with the job and the session, at the end of the transaction.
        after: Called with the job, after the commit.
        retrying: Whether the driver repeats the transaction after a transient error.
    """

    def __init__(
        self,
        monque: Monque,
        accounts: Accounts,
        *,
        inside: Step = nothing,
        after: Step = nothing,
        retrying: bool = True,
    ) -> None:
        self._monque, self._accounts = monque, accounts
        self._inside, self._after, self._retrying = inside, after, retrying
        self.runs: Counter[Any] = Counter()

    async def __call__(self, job: Job[Deposit]) -> None:
        self.runs[job.id] += 1
        async with self._monque.client.start_session() as session:
            if self._retrying:
                await session.with_transaction(lambda session: self._transact(job, session))
            else:
                async with await session.start_transaction():
                    await self._transact(job, session)
        await self._after(job)

    async def _transact(self, job: Job[Deposit], session: AsyncClientSession) -> None:
        await job.complete_in(session)
        await self._accounts.add(job.data, session)
        await self._inside(job, session)


def raising(error: Exception) -> Step:
    """A step that fails."""

    async def step(*_: object) -> None:
        raise error

    return step
