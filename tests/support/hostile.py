"""A shop whose every text was written by somebody who means harm, or is a secret."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bson import ObjectId

from monque import Monque
from monque.web.groups import shape_of
from support.aliases import Collection, Database
from support.clocks import ago, ahead, now
from support.jobs import claimed, document
from support.operating import failed
from support.register import in_the_register

# Markup, script, templates, control characters, bidi marks, CRLF and what parts a URL.
EVIL = (
    "<img src=x onerror=window.__xss=1><script>window.__xss=1</script>'\"><svg/onload=window.__xss=1>"
    "javascript:window.__xss=1//${window.__xss=1}{{7*7}}&lt;\u202egnp\u2066\u0000\x1b[31m\r\nSet-Cookie:%20x=1"
    "\u2028//evil.example/%2e%2e/../a.b%#?x=y&z"
)
LONG = EVIL + "W" * (10_000 - len(EVIL))
"""A text of 10,000 characters in which no line can be broken."""


@dataclass(frozen=True, kw_only=True)
class Texts:
    """What stands where. Names and ids are part of addresses, so they have bounds of their own."""

    name: str
    text: str
    owner: str


async def a_shop_of(
    texts: Texts, monque: Monque, collection: Collection, database: Database, *, secret: str | None = None
) -> list[str]:
    """Put the texts wherever a text can be; the paths of the pages of single things.

    *secret* stands where only those may see it who may see payloads.
    """
    await monque.begin_use("failures")
    name, owner = texts.name, texts.owner
    text = texts.text if secret is None else secret
    payload = {text[:900].replace("\0", ""): text, "list": [text, {"deep": text}]}
    history = [
        {
            "attempt": 1,
            "by": owner,
            "startedAt": ago(minutes=9),
            "finishedAt": ago(minutes=8),
            "outcome": "failed",
            "error": texts.text,
            "message": text,
            "trace": f'Traceback (most recent call last):\n  File "{text}", line 1, in {text}\n{text}',
        }
    ]
    broken = failed(name, text, data=payload, uniqueKey=text[:1000], history=history, attempt=1)
    running = claimed(
        owner,
        name=name,
        claimedAt=ago(minutes=3),
        data=payload,
        progress={"done": 1, "total": 3, "message": text, "at": now()},
        log=[{"at": now(), "level": texts.text, "text": text}],
        cancel={"by": "operator", "reason": text},
    )
    done = document(
        name=name, status="completed", data=text, result={"told": text}, resultError=text, updatedAt=now()
    )
    cancelled = document(name=name, status="cancelled", cancel={"by": "handler", "reason": text})
    waiting = document(name=name, data=payload, nextRunAt=ahead(hours=1), failCount=1, failReason=text)
    due = document(name=texts.text, data=payload, traceparent=texts.text)
    declared = await monque.schedule("0 9 * * *", "report", timezone="Europe/Berlin")
    changed = {
        "name": name,
        "data": payload,
        "uniqueKey": f"s{text[:900]}",
        "recentRuns": [{"at": ago(hours=1), "ms": 5, "outcome": texts.text}],
        "failReason": text,
        "history": history,
    }
    await collection.update_one({"_id": declared.id}, {"$set": changed})
    await collection.insert_many([broken, running, done, cancelled, waiting, due])
    await database["monque_jobs_instances"].insert_one(
        in_the_register(
            owner,
            name,
            texts.text,
            host=texts.text,
            release=texts.text,
            version=texts.text,
            python=texts.text,
            changeStream=texts.text,
            settings={"note": texts.text},
        )
    )
    await database["monque_jobs_audit"].insert_many(
        [_entry(broken["_id"], name, texts.text), _entry(declared.id, name, texts.text)]
    )
    minute = now().replace(second=0, microsecond=0)
    await database["monque_jobs_trends"].insert_many([_numbers(minute, each) for each in (name, texts.text)])
    await monque.pause("send-email", reason=texts.text[:500])
    return [
        f"/jobs/{broken['_id']}",
        f"/jobs/{running['_id']}",
        f"/jobs/{done['_id']}",
        f"/jobs/{cancelled['_id']}",
        f"/jobs/{waiting['_id']}",
        f"/jobs/{due['_id']}",
        f"/failures/{shape_of(text).fingerprint}",
        f"/schedules/{declared.id}",
    ]


def _entry(job_id: ObjectId, name: str, text: str) -> dict[str, Any]:
    return {
        "at": now(),
        "actor": text,
        "via": "web",
        "action": text,
        "outcome": "done",
        "jobId": job_id,
        "name": name,
        "note": text,
        "address": text,
        "requestId": text,
        "before": {"status": text, "cron": text, "payload": text},
        "after": {"status": "pending", "cron": "0 9 * * *", "payload": {"a": text}},
        "expireAt": ahead(days=1),
    }


def _numbers(minute: datetime, name: str) -> dict[str, Any]:
    counts = {"completed": 3, "retried": 1, "failed": 2, "cancelled": 0, "snoozed": 0}
    return {
        "_id": {"r": "m", "t": minute, "n": name},
        **counts,
        "ranMs": 600,
        "waitedMs": 60,
        "ran": {"7": 6},
        "waited": {"5": 6},
        "expireAt": ahead(days=1),
    }
