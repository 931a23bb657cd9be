"""A payload as a filter would find it, and whether its value can be seen."""

from __future__ import annotations

from typing import Any

import pytest

from monque.web.access.redaction import has_value, with_value


@pytest.mark.parametrize(
    ("data", "path", "expected"),
    [
        (None, "a", {"a": 7}),
        (None, "a.b", {"a": {"b": 7}}),
        ({"a": 1, "x": 2}, "a", {"a": 7, "x": 2}),
        ({"a": {"b": 1, "c": 2}}, "a.b", {"a": {"b": 7, "c": 2}}),
        ({"a": [{"b": 1}, {"c": 2}]}, "a.b", {"a": [{"b": 7}, {"b": 7, "c": 2}]}),
        ({"a": [{"b": 1}]}, "a.0.b", {"a": [{"b": 7}]}),
        ({"a": []}, "a.b", {"a": {"b": 7}}),
        ("text", "a", {"a": 7}),
    ],
)
def test_a_value_is_put_where_a_filter_looks_and_found_there(data: Any, path: str, expected: Any) -> None:
    made = with_value(data, path, 7)

    assert made == expected
    assert has_value(made, path, 7)


@pytest.mark.parametrize(
    "shown",
    [
        None,
        {},
        {"a": None},
        {"a": "•••"},
        {"a": {"b": "7"}},
        {"a": [{"b": 7}, {"b": "•••"}]},
        {"a": {"b": 7.0}},
    ],
)
def test_a_value_that_is_changed_anywhere_is_not_seen(shown: Any) -> None:
    assert not has_value(shown, "a.b", 7)
