"""How long the jobs of a name are kept: the types of `Keep`, and what is refused; see `calls.py`."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

from monque import Job, Keep, Monque

monque = Monque()
DAY = timedelta(days=1)


@monque.worker("ping", keep=Keep(completed=timedelta(0), failed=DAY, cancelled=DAY))
async def ping(job: Job[int]) -> None: ...


assert_type(Keep(failed=DAY).completed, timedelta | None)
Keep(completed=0)  # type: ignore[arg-type]
monque.worker("wrong", keep=DAY)  # type: ignore[call-overload]
