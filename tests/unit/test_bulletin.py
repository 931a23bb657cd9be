"""What a client of the live view is told, by the tick that it has seen: values, no I/O."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from monque._views.live import Snapshot
from monque.web.live.broadcast import Bulletin

NOW = datetime(2030, 5, 1, 9, tzinfo=UTC)


def snapshot(due: int = 0, **given: Any) -> Snapshot:
    shown = Snapshot(
        at=NOW,
        seq=0,
        every=timedelta(seconds=1),
        took=timedelta(0),
        totals={"due": due},
        rows={"mail": ("mail", due)},
        instances={},
    )
    return replace(shown, **given)


def after(ticks: int) -> Bulletin:
    bulletin = Bulletin()
    for due in range(1, ticks + 1):
        bulletin.publish(snapshot(due))
    return bulletin


def event(bulletin: Bulletin, seq: int, *, resumes: bool = False) -> str | None:
    message = bulletin.news(seq, resumes=resumes)
    return None if message is None else message.event


def test_before_the_first_tick_there_is_nothing_to_tell() -> None:
    assert Bulletin().news(0, resumes=True) is None


def test_a_new_client_gets_a_snapshot_and_then_each_delta() -> None:
    bulletin = after(1)
    first = bulletin.news(0, resumes=True)
    bulletin.publish(snapshot(2))
    second = bulletin.news(1, resumes=False)

    assert first is not None
    assert second is not None
    assert [(first.event, first.seq), (second.event, second.seq)] == [("snapshot", 1), ("delta", 2)]
    assert second.data["names"] == [("mail", 2)]


def test_a_client_that_is_slow_skips_and_gets_a_snapshot() -> None:
    assert event(after(5), 3) == "snapshot"


def test_a_client_that_comes_back_gets_what_it_missed_as_one_delta() -> None:
    message = after(62).news(30, resumes=True)

    assert message is not None
    assert (message.event, message.seq, message.data["names"]) == ("delta", 62, [("mail", 62)])


def test_the_ring_holds_sixty_ticks() -> None:
    bulletin = after(100)

    assert event(bulletin, 40, resumes=True) == "delta"
    assert event(bulletin, 39, resumes=True) == "snapshot"


def test_what_many_clients_get_is_one_message() -> None:
    """So it is encoded once."""
    bulletin = after(3)

    assert bulletin.news(2, resumes=False) is bulletin.news(2, resumes=True)
    assert bulletin.news(0, resumes=True) is bulletin.news(1, resumes=False)


@pytest.mark.parametrize(
    "given", [None, "", "7", "other-1", "{epoch}-", "{epoch}-x", "{epoch}-²", "{epoch}-1e9"]
)
def test_an_id_that_is_none_of_ours_means_a_new_client(given: str | None) -> None:
    bulletin = after(3)

    assert bulletin.seq_of(given and given.format(epoch=bulletin.epoch)) == 0


def test_an_id_of_ours_names_its_tick() -> None:
    bulletin = Bulletin()

    assert bulletin.seq_of(f"{bulletin.epoch}-12") == 12
    assert bulletin.seq_of(f"{Bulletin().epoch}-12") == 0


def test_trouble_is_told_once_for_each_reason_and_since_when() -> None:
    bulletin = after(1)
    later = NOW + timedelta(seconds=9)

    assert bulletin.be_troubled("no answer", NOW)
    assert not bulletin.be_troubled("no answer", later)
    assert bulletin.be_troubled("refused", later)
    message = bulletin.news(2, resumes=False)
    assert message is not None
    assert (message.event, message.seq) == ("trouble", 3)
    assert (message.data["since"], message.data["text"]) == ("2030-05-01T09:00:00.000Z", "refused")


def test_trouble_has_no_credentials() -> None:
    bulletin = after(1)
    bulletin.be_troubled("no MongoDB at mongodb://ada:secret@db.example.org/shop", NOW)

    message = bulletin.news(1, resumes=False)
    assert message is not None
    assert message.data["text"] == "no MongoDB at mongodb://db.example.org/shop"


def test_during_trouble_a_new_client_gets_the_last_numbers_and_the_trouble() -> None:
    bulletin = after(1)
    bulletin.be_troubled("no answer", NOW)

    message = bulletin.news(0, resumes=True)
    assert message is not None
    assert message.event == "snapshot"
    assert message.data["trouble"]["text"] == "no answer"
    assert message.data["names"] == [("mail", 1)]


def test_without_any_numbers_a_client_gets_the_trouble_and_later_a_snapshot() -> None:
    bulletin = Bulletin()
    bulletin.be_troubled("no answer", NOW)
    assert event(bulletin, 0, resumes=True) == "trouble"

    bulletin.publish(snapshot(1))
    assert event(bulletin, 1) == "snapshot"
    assert event(bulletin, 1, resumes=True) == "snapshot"


def test_the_delta_after_a_trouble_says_that_it_is_over() -> None:
    bulletin = after(1)
    bulletin.be_troubled("no answer", NOW)
    bulletin.publish(snapshot(1))

    message = bulletin.news(2, resumes=False)
    assert message is not None
    assert (message.event, message.data["trouble"]) == ("delta", None)


def test_only_some_clients_learn_who_acted() -> None:
    bulletin = Bulletin()
    bulletin.announce({"action": "retry"}, {"actor": "ada"})
    bulletin.announce({"action": "cancel"}, {"actor": "bob"})

    assert [each.data for each in bulletin.actions(1, with_actor=True)] == [
        {"action": "cancel", "actor": "bob"}
    ]
    assert [each.data for each in bulletin.actions(0, with_actor=False)] == [
        {"action": "retry"},
        {"action": "cancel"},
    ]
