"""A surface on this test's database, and callers with rights of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from monque import Monque
from monque.management import Caller, Surface
from support.callers import caller

Make = Callable[..., Surface]


@pytest.fixture
async def make_surface(monque: Monque) -> AsyncIterator[Make]:
    made: list[Surface] = []

    def make(**options: Any) -> Surface:
        made.append(Surface(monque, **options))
        return made[-1]

    yield make
    for surface in made:
        await surface.close()


@pytest.fixture
def surface(make_surface: Make) -> Surface:
    return make_surface()


@pytest.fixture
def ada() -> Caller:
    """Who may do everything."""
    return caller()
