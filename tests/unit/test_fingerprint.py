"""What failures have in common."""

from __future__ import annotations

import pytest

from monque.web.groups import shape_of


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("TimeoutError: no answer after 30 s", "TimeoutError: no answer after 12.5 s"),
        ("KeyError: 'ada'", "KeyError: 'grace hopper'"),
        ('ValueError: "a" is no number', 'ValueError: "bb" is no number'),
        ("HTTPError: 404 for https://a.example/u/17?x=1", "HTTPError: 500 for https://a.example/u/ada?y=2"),
        (
            "LookupError: no job 6f9619ff-8b86-d011-b42d-00c04fc964ff",
            "LookupError: no job 00000000-8b86-d011-b42d-00c04fc964ff",
        ),
        ("OSError: /tmp/a/one.txt is gone", "OSError: /tmp/a/two.csv is gone"),
        ("Bounce: ada@example.org refused", "Bounce: bob.b@mail.example refused"),
        ("Late: due 2026-05-01T09:00:00Z", "Late: due 2025-12-31T23:59:59.123Z"),
        ("X: object at 0x7f00aa", "X: object at 0x1"),
        ("X: digest deadbeef01", "X: digest 0123456789abcdef"),
        ("X: first\nsecond 1", "X: first\nother line"),
    ],
)
def test_what_differs_from_job_to_job_does_not_count(one: str, other: str) -> None:
    assert shape_of(one) == shape_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("TimeoutError: no answer", "OSError: no answer"),
        ("X: can't read, don't ask", "X: can't write, don't ask"),
        ("HTTPError: https://a.example/users/1", "HTTPError: https://b.example/users/1"),
    ],
)
def test_different_errors_stay_apart(one: str, other: str) -> None:
    assert shape_of(one).fingerprint != shape_of(other).fingerprint


def test_a_shape_has_twelve_hex_characters_the_type_and_a_short_sentence() -> None:
    shape = shape_of("app.errors.PaymentError: card of 'ada' refused " + "very " * 100)

    assert len(shape.fingerprint) == 12
    assert int(shape.fingerprint, 16)
    assert shape.type == "app.errors.PaymentError"
    assert shape.sentence.startswith("app.errors.PaymentError: card of '…' refused very")
    assert len(shape.sentence) == 200


@pytest.mark.parametrize("reason", [None, "", "\n", "\ud800", "no type at all, 7", "JustAType"])
def test_any_reason_has_a_shape(reason: str | None) -> None:
    assert len(shape_of(reason).fingerprint) == 12


def test_a_sentence_has_no_credentials() -> None:
    assert "pw" not in shape_of("ConnectionError: mongodb://ada:pw@db.example/x is away").sentence


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("KeyError", "KeyError"),
        ("app.PaymentError", "app.PaymentError"),
        ("sk_live_51H", ""),
        ("hunter2", ""),
        ("hunter2: is wrong", ""),
        ("KeyError: 'x'", "KeyError"),
        ("app.PaymentError: refused", "app.PaymentError"),
    ],
)
def test_a_word_is_a_type_only_if_it_is_called_so(reason: str, kind: str) -> None:
    assert shape_of(reason).type == kind
