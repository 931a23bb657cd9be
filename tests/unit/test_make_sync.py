"""`tools/make_sync.py` writes the methods of `SyncMonque`."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from monque import Job, JobFilter, Monque
from support.packaging import tool

make_sync = tool("tools/make_sync.py")


class Later(Monque):
    """A `Monque` of a later version."""

    async def new_method(self, job: Job[int], *, filter: JobFilter = JobFilter()) -> list[Job[int]]:  # noqa: A002
        return [job]

    async def new_iterator(self, name: str) -> AsyncIterator[str]:
        yield name


class Decorated(Monque):
    @pytest.fixture
    def odd(self) -> None: ...


def test_the_methods_of_sync_monque_are_those_of_todays_monque() -> None:
    assert make_sync.TARGET.read_text() == make_sync.written(Monque), "run `make sync`"


def test_a_new_method_needs_nothing_by_hand() -> None:
    made = make_sync.written(Later)

    assert (
        "    def new_method(self, job: Job[int], *, filter: JobFilter = JobFilter()) -> list[Job[int]]:\n"
        '        """As `Monque.new_method`."""\n'
        "        return self._call(self._monque.new_method(job, filter=filter))\n"
    ) in made
    assert (
        "    def new_iterator(self, name: str) -> Iterator[str]:\n"
        '        """As `Monque.new_iterator`."""\n'
        "        yield from self._each(self._monque.new_iterator(name))\n"
    ) in made


def test_what_sync_monque_has_by_hand_is_not_written() -> None:
    assert "def close(" not in make_sync.written(Monque)


def test_a_method_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(SystemExit, match="odd has no plain signature; write its twin by hand, in SyncMonque"):
        make_sync.written(Decorated)
