"""The names with limits of `lined_worker.py`, for the program and for its tests."""

from __future__ import annotations

from datetime import timedelta

from monque import Limit, Rate

KEYED = {f"by-key-{running}": Limit(running, by="key") for running in (1, 2, 7)}
ORDERED = {"ordered": Limit(1, by="key", ordered=True)}
WHOLE = {f"by-name-{running}": Limit(running) for running in (1, 2, 7)}
RATE = Rate(30, per=timedelta(seconds=2))
LIMITS = {**WHOLE, **KEYED, **ORDERED, "rated": Limit(rate=RATE)}
