"""Progress and log lines as values: what handlers may say, and what others may have stored."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from bson import decode, encode

from monque import ConfigurationError, LogLine, Progress
from monque._store.document import Claim
from monque._store.progress import log_of, progress_of, report, stored_report
from monque._values.history import Report, check_line, check_progress

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
CLAIM = {"_id": 1, "name": "work", "nextRunAt": NOW, "claimedBy": "ours", "attempt": 2}


@pytest.mark.parametrize(
    ("done", "total", "fraction"), [(0, None, None), (1, 4, 0.25), (9, 4, 1.0), (0, 0, 1.0), (0, 5, 0.0)]
)
def test_the_fraction_lies_between_0_and_1(done: float, total: float | None, fraction: float | None) -> None:
    assert Progress(done=done, total=total).fraction == fraction


@pytest.mark.parametrize("wrong", [(-1, None, None), ("1", None, None), (1, 1, 1), (10**400, None, None)])
def test_a_wrong_progress_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError):
        check_progress(*wrong)


@pytest.mark.parametrize("amount", [0, 7, 1_234_567, 2.5, 2**53 - 1, 2.0**53], ids=repr)
def test_whole_amounts_are_stored_as_doubles_and_read_as_whole_numbers(amount: float) -> None:
    stored = decode(encode(stored_report(Report(check_progress(amount, amount, None)))))
    read = progress_of(stored)

    assert type(stored["progress"]["done"]) is float
    assert read is not None
    assert (read.done, read.total) == (amount, amount)
    assert (type(read.done), type(read.total)) == (type(amount), type(amount))


def test_texts_are_cut_and_can_be_stored() -> None:
    assert check_progress(1, 2, "\ud800" + "x" * 600).message == "?" + "x" * 499
    assert check_line("y" * 600, "info").text == "y" * 500


def test_what_could_not_be_written_stays_behind_what_was_reported_since() -> None:
    earlier, later = Report(Progress(done=1)), Report(Progress(done=2))
    earlier.lines.extend(LogLine(at=NOW, level="info", text=str(number)) for number in range(80))
    later.lines.extend(LogLine(at=NOW, level="info", text=str(number)) for number in range(80, 140))

    later.put_back(earlier)

    assert later.progress == Progress(done=2)
    assert [line.text for line in later.lines] == [str(number) for number in range(40, 140)]
    earlier.put_back(Report(Progress(done=0)))
    assert earlier.progress == Progress(done=1)


def test_a_report_is_stored_and_read_as_it_was() -> None:
    given = Report(Progress(done=1.0, total=2.0, message="$half", at=NOW))
    given.lines.append(LogLine(at=NOW, level="info", text="$line"))

    stored = stored_report(given)

    assert progress_of(stored) == given.progress
    assert log_of(stored) == tuple(given.lines)
    assert stored_report(Report()) == {"progress": None, "log": []}


def test_a_report_is_a_sign_of_life_of_the_claim_that_holds() -> None:
    transition = report([Claim(CLAIM), Claim({**CLAIM, "_id": 2})], [Report(), Report()])

    assert transition.when == {"status": "processing", "claimedBy": "ours", "attempt": 2}
    assert isinstance(transition.then, list)
    assert {"lastHeartbeat", "lockedAt", "updatedAt"} < transition.then[0]["$set"].keys()


@pytest.mark.parametrize("odd", [None, 1, "x", [], {}, {"done": "1"}, {"done": -1}, {"done": True}])
def test_what_others_stored_as_progress_is_none(odd: object) -> None:
    assert progress_of({"progress": odd}) is None


@pytest.mark.parametrize("odd", [None, 1, "x", {}, [1, "x", None]])
def test_what_others_stored_as_a_log_is_left_out(odd: object) -> None:
    assert log_of({"log": odd}) == ()


def test_an_odd_line_is_shown_as_text() -> None:
    assert log_of({"log": [{"text": 5, "at": "never"}]}) == (LogLine(at=None, level="", text="5"),)
