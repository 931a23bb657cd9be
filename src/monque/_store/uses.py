"""Uses: an index that only some jobs, or some readers, need is created with the first one, and not before.

A use begins in a process in three steps: create its index, which changes nothing if that is there; note the
use in the control document, where all instances see it; remember it, so that the next job costs nothing. Then
the job is stored. All of it happens outside of the caller's transaction, in which an index of a collection
that is not empty cannot be created.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import pymongo
from pymongo import IndexModel
from pymongo.errors import PyMongoError

from monque._errors import ConfigurationError
from monque._options import Options
from monque._store import indexes
from monque._store.control import ControlDocument, Settings
from monque._store.document import Document
from monque._store.indexes import USES, Use

# How long a transaction waits for the index of a use. To build a small index takes milliseconds. But while
# the build waits for a transaction, other writes wait for the build. Half of it would refuse what a busy
# server can do; twice of it blocks the collection for longer in vain.
_LIMIT_IN_TRANSACTION = 4.0

Create: TypeAlias = Callable[[list[IndexModel]], Awaitable[None]]
List: TypeAlias = Callable[[], Awaitable[Sequence[Mapping[str, Any]]]]


class Uses:
    """Knows which uses have begun in this process, and begins the others."""

    def __init__(
        self, create: Create, list_indexes: List, control: ControlDocument, options: Options
    ) -> None:
        self._create = create
        self._list_indexes = list_indexes
        self._control = control
        self._options = options
        self._one_at_a_time = asyncio.Lock()
        self._waiting = dict(USES)
        """The uses that have not begun here."""
        self._beginning = {use.field: use.name for use in USES.values() if use.field is not None}
        """Those of them that begin with a job, by the field that shows it."""
        self._noted: frozenset[str] = frozenset()
        """The uses in the control document, as far as this instance knows."""

    def is_noted(self, name: str) -> bool:
        """Whether the collection is used for this: by whichever process, so that its index is there."""
        return name in self._noted

    def learn(self, noted: frozenset[str]) -> None:
        """Take in the uses that the control document has."""
        self._noted = noted

    async def read(self) -> frozenset[str]:
        """The uses that the control document has; none if the user may not read it."""
        self._noted = (await self._control.read_if_allowed()).uses
        return self._noted

    @property
    def begun(self) -> frozenset[str]:
        """The uses that have begun in this process."""
        return frozenset(USES.keys() - self._waiting.keys())

    def needed_by(self, documents: Iterable[Document]) -> set[str]:
        """The uses that new jobs need and that have not begun here: as a rule none, so this must be quick."""
        beginning = self._beginning.items()
        return {name for document in documents for field, name in beginning if field in document}

    async def begin(self, name: str, *, in_transaction: bool = False) -> Settings | None:
        """Begin a use, unless it has begun here; return the control document if it had to be written.

        *in_transaction*: the caller has a transaction open, which must not wait for long.

        Raises:
            ConfigurationError: There is no such index, and `Options.create_indexes` is False; or an index of
                the collection stands in its way; or a transaction would have to wait for it.
        """
        async with self._one_at_a_time:
            if (use := self._waiting.get(name)) is None:
                return None
            if self._options.create_indexes:
                await self._create_index(use, in_transaction=in_transaction)
            else:
                await self._require(use)
            # Who may not write there can store such jobs where somebody else has begun the use.
            is_noted = name in await self.read()
            settings = None if is_noted else await self._control.begin_use(name)
            self._noted |= {name}
            del self._waiting[name]
            if use.field is not None:
                del self._beginning[use.field]
            return settings

    async def note_again(self, noted: frozenset[str]) -> None:
        """Note what has begun here and is not *noted*: somebody has dropped the database, and we go on."""
        for name in self.begun - noted:
            await self._control.begin_use(name)
            self._noted |= {name}

    async def _create_index(self, use: Use, *, in_transaction: bool) -> None:
        """Create the index, which changes nothing if it is there.

        To build one, the server waits for all transactions that have written to the collection. That of the
        caller may be one of them: it would wait for the index, and the index for it.
        """
        if not in_transaction:
            await self._create([use.index])
            return
        try:
            with pymongo.timeout(_LIMIT_IN_TRANSACTION):
                await self._create([use.index])
        except PyMongoError as error:
            if not error.timeout:
                raise
            raise ConfigurationError(
                f"the index {use.index_name!r}, which {use.reason}, cannot be created while a transaction "
                f"is open that has used the collection; begin the use before, with "
                f"Options(uses=({use.name!r},)) or with: monque indexes --create --for {use.name}"
            ) from error

    async def _require(self, use: Use) -> None:
        for index in await self._list_indexes():
            if index["name"] == use.index_name and indexes.is_same(index, use.index):
                return
        raise missing(use, ", and create_indexes=False keeps Monque from creating it")


def missing(use: Use, why: str = "") -> ConfigurationError:
    """That the index of a use is not there, and what creates it."""
    return ConfigurationError(
        f"the collection has no index {use.index_name!r}, which {use.reason}{why}; "
        f"create it with: monque indexes --create --for {use.name}"
    )
