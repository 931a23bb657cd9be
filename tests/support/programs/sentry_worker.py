"""A worker with Sentry, whose events are printed instead of sent: `sentry_worker.py URI`."""

import asyncio
import json
import logging
import os
import sys
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.integrations.pymongo import PyMongoIntegration
from sentry_sdk.transport import Transport

from monque import Cancel, Fail, Job, Monque, Options, RetryAfter, Snooze
from monque.sentry import setup_sentry

CARD = "4111-1111-1111"
SOON = timedelta(seconds=0.02)
monque = Monque(sys.argv[1], options=Options(base_retry_interval=SOON, max_retries=2))


class Printing(Transport):
    """Prints each event as a line of JSON."""

    def capture_envelope(self, envelope: Envelope) -> None:
        if (event := envelope.get_event()) is not None:
            print(json.dumps(event, default=str), flush=True)


async def work(job: Job[dict[str, Any]]) -> None:
    secret = job
    sentry_sdk.add_breadcrumb(message=f"crumb of {job.data['do']}")
    if "user" in job.data:
        sentry_sdk.set_user({"id": job.data["user"]})
        sentry_sdk.set_tag("plan", "gold")
    match job.data["do"]:
        case "fail":
            await monque.database["monque_jobs_to_print"].find_one({"_id": job.attempt})
            raise ValueError(f"failed {secret.attempt}")
        case "verdict":
            raise Fail("dealt with") from ValueError("a cause")
        case "cancel":
            raise Cancel("not needed")
        case "snooze" if not job.snooze_count:
            raise Snooze(timedelta(0))
        case "sleep":
            await job.sleep("rest", timedelta(0))
        case "again":
            raise RetryAfter(timedelta(0))
        case "late":
            await asyncio.Event().wait()
        case "message":
            sentry_sdk.capture_message("said in a run")


def in_thread(job: Job[dict[str, Any]]) -> None:
    sentry_sdk.set_user({"id": job.data["user"]})
    raise KeyError("in a thread")


async def odd(job: Job[str]) -> str:
    sentry_sdk.set_user({"id": job.data})
    return "x" * 70_000  # more than is stored


def in_child(job: Job[str]) -> None:
    print("child", job.data, os.getpid() != int(job.data), flush=True)
    raise LookupError("in a child")


@dataclass
class Card:
    number: int


async def pay(job: Job[Card]) -> None:
    raise AssertionError("its payload does not fit")


async def told(job: Job[str]) -> None:
    raise RuntimeError(f"told {job.attempt}")


async def main() -> None:
    sentry_sdk.init(
        "http://key@localhost/1",
        transport=Printing,
        default_integrations=True,
        auto_enabling_integrations=False,
        integrations=[PyMongoIntegration()],
        attach_stacktrace=True,  # a message has the variables of frames, too
    )
    logging.getLogger("monque").setLevel(logging.INFO)
    setup_sentry(monque, retries="info")
    monque.worker("work", work, concurrency=1)
    telling = Monque(sys.argv[1], options=replace(monque.options, collection="told"))
    setup_sentry(telling, retries=None, payload=True)
    telling.worker("told", told)
    monque.worker("late", work, timeout=timedelta(seconds=0.1), max_attempts=1)
    monque.worker("thread", in_thread, max_attempts=1)
    monque.worker("odd", odd, store_result=True)
    monque.worker("pay", pay, max_attempts=1)
    monque.worker("child", in_child, mode="process", max_attempts=1)
    async with monque:
        await monque.start()
        for name, data, key in (
            ("work", {"do": "fail", "user": "ada", "card": CARD}, "order-7"),
            ("work", {"do": "message", "card": CARD}, None),
            *[("work", {"do": do}, None) for do in ("verdict", "cancel", "snooze", "sleep")],
            ("work", {"do": "again"}, None),
            ("late", {"do": "late"}, None),
            ("thread", {"user": "bob"}, None),
            ("odd", "cy", None),
            ("child", str(os.getpid()), None),
            ("work", "no payload of this type", None),
        ):
            job = await monque.enqueue(name, data, unique_key=key)
            await monque.wait_for(job)
        async with Monque(sys.argv[1]) as elsewhere:  # which does not know what the handler takes
            await monque.wait_for(await elsewhere.enqueue("pay", {"number": CARD}))
        async with telling:
            job = await telling.enqueue("told", "a payload")
            await telling.start()
            await telling.wait_for(job)
        sentry_sdk.capture_message("said outside")


if __name__ == "__main__":
    asyncio.run(main())
