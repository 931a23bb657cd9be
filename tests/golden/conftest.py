"""A collection with one job of each kind, made by real runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.aliases import Make
from support.each_kind import Stored, store_each_kind
from support.options import ONE_TRY


@pytest.fixture
async def stored(make_monque: Make) -> Stored:
    return await store_each_kind(make_monque(options=replace(ONE_TRY, instance_id="golden-instance")))
