"""Between jobs and documents, without a database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from monque._store.document import earliest_due, made_aware

NAIVE = datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001 - as it is read
AWARE = NAIVE.replace(tzinfo=UTC)


def test_every_datetime_gets_its_zone_however_deep_it_is() -> None:
    document = {
        "at": NAIVE,
        "data": {"list": [NAIVE, [NAIVE], {"in": NAIVE}], "text": "as it is", "none": None},
    }

    assert made_aware(document) == {
        "at": AWARE,
        "data": {"list": [AWARE, [AWARE], {"in": AWARE}], "text": "as it is", "none": None},
    }


def test_the_earliest_time_of_each_name_is_when_its_first_job_is_due() -> None:
    later = AWARE + timedelta(seconds=1)
    documents = [
        {"name": "mail", "nextRunAt": later},
        {"name": "mail", "nextRunAt": AWARE},
        {"name": "report", "nextRunAt": later},
    ]

    assert earliest_due(documents) == {"mail": AWARE, "report": later}


def test_a_document_without_a_name_or_a_time_is_never_due() -> None:
    assert (
        earliest_due([{"name": ["mail"], "nextRunAt": AWARE}, {"name": "mail", "nextRunAt": "now"}, {}]) == {}
    )
