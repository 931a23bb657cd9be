"""Which names have no due job, and until when."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from bson import ObjectId

from monque._store.choose import NEVER, IdleNames
from monque._store.document import Entry

NOW = datetime(2030, 1, 1, 12)  # noqa: DTZ001 - naive, as all times of candidates
SOON, LATER = NOW + timedelta(minutes=1), NOW + timedelta(hours=1)
EARLIER = NOW - timedelta(minutes=1)


def entry(name: str, at: datetime) -> Entry:
    return {"_id": ObjectId(), "name": name, "nextRunAt": at}


def polled(names: list[str], *found: Entry, seen_until: datetime = NEVER) -> IdleNames:
    idle = IdleNames()
    idle.rest(names, found, seen_until=seen_until, mark=idle.begin_poll())
    return idle


def test_a_name_that_was_never_polled_is_not_idle() -> None:
    idle = IdleNames()
    assert not idle.is_idle("mail", NOW)
    assert idle.next_due(["mail"], NOW) == NEVER


def test_a_name_without_a_job_is_idle_until_it_is_woken() -> None:
    idle = polled(["mail", "pay"])
    assert idle.is_idle("mail", NOW + timedelta(days=365))
    idle.wake("mail")
    assert not idle.is_idle("mail", NOW)
    assert idle.is_idle("pay", NOW)


def test_a_name_is_idle_until_its_first_job_is_due() -> None:
    idle = polled(["mail"], entry("mail", SOON), entry("mail", LATER))
    assert idle.is_idle("mail", SOON - timedelta(milliseconds=1))
    assert not idle.is_idle("mail", SOON)


def test_a_name_with_a_due_job_is_not_idle() -> None:
    assert not polled(["mail"], entry("mail", EARLIER), entry("mail", SOON)).is_idle("mail", NOW)


def test_names_that_a_cut_off_poll_did_not_show_are_idle_until_the_last_job_that_it_did() -> None:
    """It saw every job that is due before its last one, and none of theirs was among them."""
    idle = polled(["mail", "pay"], entry("mail", SOON), entry("mail", LATER), seen_until=LATER)
    assert idle.is_idle("pay", LATER - timedelta(milliseconds=1))
    assert not idle.is_idle("pay", LATER)
    assert not idle.is_idle("mail", SOON)


def test_a_poll_that_was_cut_off_among_due_jobs_puts_nothing_to_rest() -> None:
    idle = polled(["mail", "pay"], entry("mail", EARLIER), seen_until=EARLIER)
    assert not idle.is_idle("mail", NOW)
    assert not idle.is_idle("pay", NOW)


def test_a_name_that_is_woken_during_a_poll_is_not_put_to_rest_by_it() -> None:
    """The job was stored after the poll had passed its place."""
    idle = IdleNames()
    mark = idle.begin_poll()
    idle.wake("mail")
    idle.rest(["mail", "pay"], [], seen_until=NEVER, mark=mark)
    assert not idle.is_idle("mail", NOW)
    assert idle.is_idle("pay", NOW)


def test_if_all_names_are_woken_during_a_poll_none_is_put_to_rest_by_it() -> None:
    idle = IdleNames()
    mark = idle.begin_poll()
    idle.wake()
    idle.rest(["mail", "pay"], [], seen_until=NEVER, mark=mark)
    assert not idle.is_idle("mail", NOW)
    assert not idle.is_idle("pay", NOW)


def test_the_next_poll_puts_a_woken_name_to_rest_again() -> None:
    idle = IdleNames()
    idle.wake("mail")
    idle.wake()
    idle.rest(["mail"], [], seen_until=NEVER, mark=idle.begin_poll())
    assert idle.is_idle("mail", NOW)


def test_a_wake_up_before_a_poll_does_not_outweigh_it_even_if_another_name_is_woken_later() -> None:
    idle = IdleNames()
    idle.wake("mail")
    mark = idle.begin_poll()
    idle.wake("pay")
    idle.rest(["mail", "pay"], [], seen_until=NEVER, mark=mark)
    assert idle.is_idle("mail", NOW)
    assert not idle.is_idle("pay", NOW)


def test_the_next_time_to_poll_is_that_of_the_first_idle_name() -> None:
    idle = polled(["mail", "pay", "due"], entry("due", EARLIER), entry("pay", SOON), entry("mail", LATER))
    assert idle.next_due(["mail", "pay", "due"], NOW) == SOON
    assert idle.next_due(["mail"], NOW) == LATER
    assert idle.next_due(["due", "unknown"], NOW) == NEVER


def test_a_mark_tells_whether_anything_was_woken_after_it() -> None:
    idle = IdleNames()
    mark = idle.begin_poll()
    assert not idle.woken_since(mark)
    idle.wake("mail")
    assert idle.woken_since(mark)
    assert not idle.woken_since(idle.begin_poll())


def test_a_name_at_rest_stays_so_until_an_expected_job_is_due() -> None:
    idle = polled(["mail", "pay"])
    idle.expect("mail", SOON)

    assert idle.is_idle("mail", SOON - timedelta(milliseconds=1))
    assert not idle.is_idle("mail", SOON)
    assert idle.is_idle("pay", LATER)


def test_an_expected_job_does_not_let_a_name_rest_longer_than_before() -> None:
    idle = polled(["mail"], entry("mail", SOON))
    idle.expect("mail", LATER)

    assert not idle.is_idle("mail", SOON)


def test_a_job_that_is_expected_of_any_name_counts_for_all_of_them() -> None:
    idle = polled(["mail", "pay"], entry("pay", SOON))
    idle.expect(None, LATER)

    assert idle.is_idle("mail", SOON)
    assert not idle.is_idle("mail", LATER)
    assert not idle.is_idle("pay", SOON)


@pytest.mark.parametrize("name", ["mail", None])
def test_a_poll_under_way_does_not_put_a_name_to_rest_of_which_a_job_is_expected(name: str | None) -> None:
    """The poll may have passed its place before the job was stored."""
    idle = IdleNames()
    mark = idle.begin_poll()
    idle.expect(name, SOON)
    idle.rest(["mail"], [], seen_until=NEVER, mark=mark)

    assert not idle.is_idle("mail", SOON)
    assert not idle.is_idle("mail", NOW)


def test_a_name_that_is_not_at_rest_is_polled_although_a_job_is_expected_of_it() -> None:
    idle = IdleNames()
    idle.expect("mail", SOON)

    assert not idle.is_idle("mail", NOW)


JOB, OTHER = ObjectId(), ObjectId()


def test_a_hinted_job_of_an_idle_name_is_claimed_by_its_id_and_the_name_stays_idle() -> None:
    idle = polled(["mail", "pay"])
    idle.wake_for("mail", JOB)

    assert idle.take_lone({"mail": 1, "pay": 1}, 5, NOW) == {"mail": JOB}
    assert idle.is_idle("mail", NOW)
    assert idle.take_lone({"mail": 1, "pay": 1}, 5, NOW) == {}


def test_a_hinted_job_that_a_poll_has_found_needs_no_claim_of_its_own() -> None:
    """Its hint came while the poll was under way."""
    idle = polled(["mail", "pay"])
    idle.wake_for("mail", JOB)
    idle.wake_for("pay", OTHER)
    idle.forget_lone([JOB, {"odd": "id"}])

    assert idle.take_lone({"mail": 1, "pay": 1}, 5, NOW) == {"pay": OTHER}
    assert idle.is_idle("mail", NOW)


def test_a_hint_for_a_name_that_is_not_idle_asks_for_a_poll() -> None:
    idle = IdleNames()
    idle.wake_for("mail", JOB)

    assert idle.take_lone({"mail": 1}, 5, NOW) == {}
    assert not idle.is_idle("mail", NOW)


def test_a_second_hint_for_a_name_asks_for_a_poll_because_there_may_be_many() -> None:
    idle = polled(["mail"])
    idle.wake_for("mail", JOB)
    idle.wake_for("mail", OTHER)

    assert idle.take_lone({"mail": 5}, 5, NOW) == {}
    assert not idle.is_idle("mail", NOW)


def test_a_hinted_job_waits_for_the_poll_if_another_name_may_have_an_older_one() -> None:
    idle = polled(["mail", "pay"])
    idle.wake_for("mail", JOB)
    idle.wake("pay")

    assert idle.take_lone({"mail": 1, "pay": 1}, 5, NOW) == {}
    assert not idle.is_idle("mail", NOW)


def test_a_hinted_job_without_a_slot_is_polled_for_when_there_is_one() -> None:
    idle = polled(["mail", "pay"])
    idle.wake_for("mail", JOB)

    assert idle.take_lone({"pay": 1}, 5, NOW) == {}
    assert not idle.is_idle("mail", NOW)


def test_if_there_is_no_room_for_all_hinted_jobs_a_poll_finds_the_oldest_and_reports_the_others() -> None:
    idle = polled(["mail", "pay"])
    idle.wake_for("mail", JOB)
    idle.wake_for("pay", OTHER)

    assert idle.take_lone({"mail": 1, "pay": 1}, 1, NOW) == {}
    assert not idle.is_idle("mail", NOW)
    assert not idle.is_idle("pay", NOW)


def test_a_hint_during_a_poll_that_covers_its_name_keeps_it_from_resting() -> None:
    idle = IdleNames()
    mark = idle.begin_poll()
    idle.wake_for("mail", JOB)
    idle.rest(["mail"], [], seen_until=NEVER, mark=mark)

    assert not idle.is_idle("mail", NOW)


def test_a_hinted_job_waits_for_the_poll_if_the_next_time_of_its_name_has_come() -> None:
    idle = polled(["mail"], entry("mail", SOON))
    idle.wake_for("mail", JOB)

    assert idle.take_lone({"mail": 1}, 5, LATER) == {}
    assert not idle.is_idle("mail", NOW)
