"""What the management API costs on a large collection: each read, the pulse, and very many streams.

`python -m bench.web` prints the time of each read.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlsplit

from bson import ObjectId

from bench.footprint import current_memory
from bench.scenario import LeftOutError, Round, Subject
from bench.stage import Sample, Stage
from monque import Monque, Options

# A busy shop after some months. Half as many fit into the caches of a small server; twice as many take twice
# the minutes to store, and tell the same.
JOBS = 1_000_000
_WAITING, _FAILED, _RUNNING, _NAMES = 200_000, 10_000, 200, 500
_AT_ONCE = 10_000

_OPS = "/api/ops/v1"
READS = (
    "/me",
    "/overview?window=1h",
    "/overview?window=24h",
    "/queues",
    "/queue?name=name-7",
    "/queue/explanation?name=name-7",
    "/jobs",
    "/jobs?status=failed",
    "/jobs?status=failed&status=cancelled&name=name-7",
    "/jobs?status=pending&due=now",
    "/jobs?status=processing",
    "/jobs?name=name-7&limit=100",
    "/jobs?uniqueKey=key-7",
    "/jobs?name=name-7&payload.order=4711",
    "/jobs/count",
    "/jobs/count?status=pending",
    "/jobs/count?status=failed",
    "/jobs/{failed}",
    "/jobs/{due}",
    "/jobs/{due}/explanation",
    "/failures?window=24h",
    "/failures?window=7d&name=name-7",
    "/schedules",
    "/instances",
    "/running",
    "/trends?step=60000",
    "/latency?window=1h",
    "/audit",
    "/search?q=name-4",
    "/doctor",
)


def reads(*, jobs: int = JOBS) -> Subject:
    """The time of each read: the median and, as the p99, the slowest."""

    @asynccontextmanager
    async def subject(stage: Stage) -> AsyncIterator[Round]:
        async with _dashboard(stage, jobs) as (app, ids):

            async def measure() -> Sample:
                with stage.costs(len(READS)) as costs:
                    times = await _times(app, ids)
                return costs.sample(
                    sorted(times.values())[len(times) // 2] * 1000, "ms", p99=max(times.values()) * 1000
                )

            yield measure

    return subject


def pulse(*, jobs: int = JOBS, streams: int = 1, seconds: float = 20.0) -> Subject:
    """How busy open streams keep the server, in per cent of a core."""

    @asynccontextmanager
    async def subject(stage: Stage) -> AsyncIterator[Round]:
        async with _dashboard(stage, jobs) as (app, _):

            async def measure() -> Sample:
                async with _listening(app, streams):
                    with stage.costs(1) as costs:
                        await asyncio.sleep(seconds)
                return costs.sample(100 * costs.server / costs.seconds, "%")

            yield measure

    return subject


def listeners(*, streams: int, seconds: float = 10.0) -> Subject:
    """How busy many streams keep this process, in per cent of a core."""

    @asynccontextmanager
    async def subject(stage: Stage) -> AsyncIterator[Round]:
        async with _dashboard(stage, 2_000) as (app, _):

            async def measure() -> Sample:
                async with _listening(app, streams):
                    with stage.costs(1) as costs:
                        await asyncio.sleep(seconds)
                return costs.sample(100 * costs.client / costs.seconds, "%")

            yield measure

    return subject


@asynccontextmanager
async def _dashboard(stage: Stage, jobs: int) -> AsyncIterator[tuple[Any, Mapping[str, str]]]:
    try:
        from monque.web import LoopbackOnly, dashboard
    except ImportError:
        raise LeftOutError("there is no monque.web") from None
    options = Options(collection="shop")
    async with Monque(stage.database, options=options) as monque:
        ids = await _fill(stage.database["shop"], jobs)
        async with dashboard(monque, auth=LoopbackOnly()) as app:
            await _get(app, f"{_OPS}/me")
            yield app, ids
    await stage.database.drop_collection("shop")


async def _fill(collection: Any, jobs: int) -> Mapping[str, str]:
    """Store jobs in all states, and return the ids of some of them."""
    some: dict[str, str] = {}
    now = datetime.now(UTC)
    batch: list[dict[str, Any]] = []
    for number in range(jobs):
        document = _document(number, jobs, now)
        some.setdefault(
            "due" if document["status"] == "pending" else document["status"], str(document["_id"])
        )
        batch.append(document)
        if len(batch) == _AT_ONCE or number == jobs - 1:
            await collection.insert_many(batch, ordered=False)
            batch = []
    return some


def _document(number: int, jobs: int, now: datetime) -> dict[str, Any]:
    share = number / jobs * JOBS
    at = now - timedelta(seconds=number % 86_400)
    job = {
        "_id": ObjectId(),
        "name": f"name-{number % _NAMES}",
        "data": {"order": number % 10_000, "to": f"customer-{number}@example.org"},
        "createdAt": at,
        "updatedAt": at,
        "failCount": 0,
    }
    if share < _WAITING:
        late = timedelta(hours=1) if number % 2 else -timedelta(minutes=number % 60)
        return {**job, "status": "pending", "nextRunAt": now + late}
    if share < _WAITING + _FAILED:
        reason = f"TimeoutError: no answer from mx{number % 3}.example.org within {number % 9} s"
        return {**job, "status": "failed", "nextRunAt": at, "failCount": 10, "failReason": reason}
    if share < _WAITING + _FAILED + _RUNNING:
        claim = {"claimedBy": f"web-{number % 4}", "lockedAt": now, "claimedAt": now, "lastHeartbeat": now}
        return {**job, **claim, "status": "processing", "nextRunAt": at, "attempt": 1}
    return {**job, "status": "completed", "nextRunAt": at, "startedAt": at, "finishedAt": at, "attempt": 1}


async def _times(app: Any, ids: Mapping[str, str]) -> dict[str, float]:
    times = {}
    for read in READS:
        began = time.perf_counter()
        status = await _get(app, _OPS + read.format(**ids))
        times[read] = time.perf_counter() - began
        if status != 200:  # too slow, as a rule
            print(f"{read} answered {status} after {times[read] * 1000:.0f} ms", file=sys.stderr)
        await asyncio.sleep(1.1)  # equal questions within a second share an answer: measure each anew
    return times


def _scope(address: str) -> dict[str, Any]:
    parts = urlsplit(address)
    return {
        "type": "http",
        "method": "GET",
        "path": parts.path,
        "raw_path": quote(parts.path).encode(),
        "query_string": parts.query.encode(),
        "root_path": "",
        "scheme": "http",
        "http_version": "1.1",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 5),
        "server": ("127.0.0.1", 80),
    }


async def _get(app: Any, address: str) -> int:
    """Ask in this process, without a network between; the status of the answer."""
    status = 0

    async def send(message: Mapping[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)

    await app(_scope(address), _nothing_more(), send)
    return status


def _nothing_more() -> Any:
    requests = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Mapping[str, Any]:
        for request in requests:
            return request
        await asyncio.Event().wait()
        raise AssertionError

    return receive


@asynccontextmanager
async def _listening(app: Any, streams: int) -> AsyncIterator[None]:
    """Open streams that take whatever comes."""
    begun = asyncio.Event()

    async def send(message: Mapping[str, Any]) -> None:
        if b"snapshot" in message.get("body", b""):
            begun.set()

    scope = _scope(f"{_OPS}/stream")
    tasks = [asyncio.create_task(app(dict(scope), _nothing_more(), send)) for _ in range(streams)]
    await begun.wait()
    yield
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _lines(times: Mapping[str, float]) -> Iterator[str]:
    for read, seconds in sorted(times.items(), key=lambda each: -each[1]):
        yield f"{seconds * 1000:8.1f} ms  {read}"


async def _main(jobs: int) -> None:
    from pymongo import AsyncMongoClient

    from monque.embedded import EmbeddedMongo

    with EmbeddedMongo(temporary=True) as server:
        async with AsyncMongoClient[Any](server.uri) as client:
            stage = Stage.on(client["bench"], server.uri)
            async with _dashboard(stage, jobs) as (app, ids):
                print("\n".join(_lines(await _times(app, ids))))
                for streams in (1, 200):
                    before = current_memory()
                    async with _listening(app, streams):
                        with stage.costs(1) as costs:
                            await asyncio.sleep(20)
                        share = {"server": costs.server, "this process": costs.client}
                    spent = ", ".join(
                        f"{each} {100 * cpu / costs.seconds:.1f} %" for each, cpu in share.items()
                    )
                    print(f"{streams} streams, of a core: {spent}; memory +{current_memory() - before} kB")


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]) if len(sys.argv) > 1 else JOBS))
