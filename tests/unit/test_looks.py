"""Reads that callers share."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from monque.web.errors import TooBusyError
from monque.web.read_cache import Looks


class Database:
    """Answers when it is told to, and counts the questions."""

    def __init__(self) -> None:
        self.questions = 0
        self.answers = asyncio.Event()

    async def read(self) -> int:
        self.questions += 1
        asked = self.questions
        await self.answers.wait()
        return asked


async def test_equal_questions_are_one_query_also_after_the_answer() -> None:
    database, looks = Database(), Looks(at_once=8)
    asked = [asyncio.create_task(looks.share("q", database.read)) for _ in range(5)]
    await asyncio.sleep(0)
    database.answers.set()

    assert await asyncio.gather(*asked) == [1] * 5
    assert await looks.share("q", database.read) == 1
    assert await looks.share("other", database.read) == 2


async def test_an_answer_is_kept_only_for_its_time() -> None:
    database, looks = Database(), Looks(at_once=8)
    database.answers.set()

    assert await looks.share("q", database.read, keep=timedelta(0)) == 1
    assert await looks.share("q", database.read, keep=lambda took: took + timedelta(minutes=1)) == 2
    assert await looks.share("q", database.read) == 2


async def test_after_an_action_nobody_gets_what_was_read_before() -> None:
    """A read is under way while somebody acts: who asks afterwards must not get its answer."""
    database, looks = Database(), Looks(at_once=8)
    before = asyncio.create_task(looks.share("q", database.read))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    looks.drop()
    after = asyncio.create_task(looks.share("q", database.read))
    await asyncio.sleep(0)
    database.answers.set()

    assert await before == 1
    assert await after == 2
    assert await looks.share("q", database.read) == 2


async def test_a_caller_who_goes_away_takes_nobody_along() -> None:
    database, looks = Database(), Looks(at_once=8)
    first = asyncio.create_task(looks.share("q", database.read))
    second = asyncio.create_task(looks.share("q", database.read))
    await asyncio.sleep(0)
    first.cancel()
    database.answers.set()

    assert await second == 1
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_an_error_is_not_kept() -> None:
    looks = Looks(at_once=8)

    async def fail() -> int:
        raise RuntimeError("boom")

    async def succeed() -> int:
        return 7

    with pytest.raises(RuntimeError):
        await looks.share("q", fail)
    assert await looks.share("q", succeed) == 7


async def test_who_waits_too_long_for_a_turn_is_told_to_come_back() -> None:
    database, looks = Database(), Looks(at_once=2, longest_wait=0.01)
    running = [asyncio.create_task(looks.share(number, database.read)) for number in range(2)]
    await asyncio.sleep(0)

    with pytest.raises(TooBusyError) as error:
        await looks.share("third", database.read)

    assert error.value.headers == {"retry-after": "2"}
    database.answers.set()
    await asyncio.gather(*running)
    assert await looks.share("third", database.read) == 3


async def test_closing_ends_what_is_under_way() -> None:
    database, looks = Database(), Looks(at_once=8)
    asked = asyncio.create_task(looks.share("q", database.read))
    await asyncio.sleep(0)

    await looks.close()

    with pytest.raises(asyncio.CancelledError):
        await asked


async def test_old_answers_do_not_pile_up() -> None:
    database, looks = Database(), Looks(at_once=8)
    database.answers.set()
    for number in range(500):
        await looks.share(number, database.read, keep=timedelta(0))

    assert len(looks._looks) <= 64
