"""How fast calls are answered whose job is there: kept, replaced, noted in a running job, throttled."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Literal

import monque as library
from bench.scenario import LeftOutError, Round, Subject
from bench.stage import Sample, Stage
from monque import Monque

Answer = Literal["kept", "replaced", "again", "throttled"]

# So many keys take turns, as those of a busy service do. With one, each call would meet the write before it;
# with ten times as many nothing changes.
_KEYS = 10


def answered(answer: Answer, *, count: int) -> Subject:
    """Calls one after another, each for a job that is there."""

    @asynccontextmanager
    async def subject(stage: Stage) -> AsyncIterator[Round]:
        if not hasattr(library, "Unique"):
            raise LeftOutError("it has no Unique")
        async with Monque(stage.database) as monque:
            for number in range(_KEYS):
                await monque.enqueue("work", number, **_settings(answer, number))
            if answer == "again":
                running = {"status": "processing", "claimedBy": "somebody", "attempt": 1}
                await stage.database["monque_jobs"].update_many({}, {"$set": running})

            async def measure() -> Sample:
                with stage.costs(count) as costs:
                    for number in range(count):
                        job = await monque.enqueue("work", number, **_settings(answer, number % _KEYS))
                        assert job.enqueued == answer
                return costs.rate()

            yield measure
        await stage.database.drop_collection("monque_jobs")

    return subject


def _settings(answer: Answer, number: int) -> dict[str, Any]:
    from monque import Unique

    if answer == "kept":
        return {"unique_key": str(number)}
    if answer == "throttled":
        return {"unique": Unique(str(number), window=timedelta(hours=1))}
    return {"unique": Unique(str(number), on_conflict="replace")}
