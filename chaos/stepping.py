"""The handler with steps: it pays, sleeps and waits for a signal, and writes down what it does."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

from pymongo.asynchronous.client_session import AsyncClientSession

from chaos.history import History
from chaos.rules import ACCOUNTS, SIGNAL, TRANSFERS
from chaos.running import Payload, Run, do_as_meant
from monque import Job, Monque, WaitTimeoutError


class Order:
    """One run of the handler.

    A line `step` stands before the work of a step, a line `stored` after its checkpoint: who reads them knows
    which steps ran though they were stored.
    """

    def __init__(self, monque: Monque, history: History, job: Job[Payload]) -> None:
        self._monque = monque
        self._history = history
        self._job = job

    async def fulfil(self) -> str:
        """Run from the first step to the last."""
        with Run(self._history, self._job):
            await self._step("reserve", self._reserve)
            await asyncio.gather(self._step("pick", self._pick), self._step("wrap", self._wrap))
            await self._job.transaction("pay", self._pay)
            self._note("stored", "pay")
            await self._job.sleep("rest", timedelta(seconds=self._job.data["rest"]))
            self._note("woke", "rest")
            await self._receive()
            await self._step("send", self._send)
            return str(self._job.data["token"])

    async def _step(self, name: str, work: Any) -> None:
        await self._job.step(name, work)
        self._note("stored", name)

    async def _receive(self) -> None:
        timeout = self._job.data["timeout"]
        try:
            received = await self._job.receive(
                SIGNAL, dict[str, Any], timeout=None if timeout is None else timedelta(seconds=timeout)
            )
        except WaitTimeoutError:
            received = None
        self._note("received", SIGNAL, value=received)

    async def _reserve(self) -> str:
        await self._work("reserve")
        return str(self._job.data["token"])

    def _pick(self) -> int:
        """In a thread."""
        self._note("step", "pick")
        time.sleep(self._job.data["ms"] / 1000)
        self._end_as_meant("pick")
        return self._job.attempt

    async def _wrap(self) -> None:
        await self._work("wrap")

    async def _send(self) -> None:
        await self._work("send")

    async def _pay(self, session: AsyncClientSession) -> int:
        """Move money from one account to another: what all of them hold together stays the same."""
        self._note("step", "pay")
        payer, payee, amount = (self._job.data[what] for what in ("payer", "payee", "amount"))
        database = self._monque.database
        for account, change in ((payer, -amount), (payee, amount)):
            await database[ACCOUNTS].update_one(
                {"_id": account}, {"$inc": {"balance": change}}, session=session
            )
        transfer = {"job": str(self._job.id), "payer": payer, "payee": payee, "amount": amount}
        await database[TRANSFERS].insert_one(transfer, session=session)
        self._end_as_meant("pay")
        return int(amount)

    async def _work(self, name: str) -> None:
        self._note("step", name)
        await asyncio.sleep(self._job.data["ms"] / 1000)
        self._end_as_meant(name)

    def _end_as_meant(self, name: str) -> None:
        if self._job.data["fails_at"] == name:
            do_as_meant(self._job)

    def _note(self, kind: str, step: str, **facts: Any) -> None:
        self._history.record(kind, job=str(self._job.id), attempt=self._job.attempt, step=step, **facts)
