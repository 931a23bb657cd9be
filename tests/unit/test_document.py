"""Between jobs and documents, without a database."""

from __future__ import annotations

from datetime import UTC, datetime

from monque._store.document import made_aware

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
