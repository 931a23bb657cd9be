"""Names for the types that most tests mention."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase

from monque import Monque

Collection = AsyncCollection[dict[str, Any]]
Database = AsyncDatabase[dict[str, Any]]
Make = Callable[..., Monque]
"""The fixture `make_monque`: takes what `Monque` takes; default: this test's database, quick options."""
Failing = Callable[..., AbstractAsyncContextManager[None]]
"""The fixture `failing`: takes what `support.servers.failing` takes after the client."""
