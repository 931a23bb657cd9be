"""What redaction hides: whatever the shape, no value of a telling key survives."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bson import Code, DBRef
from hypothesis import given
from hypothesis import strategies as st

from monque import ConfigurationError
from monque._views.text import extended, plain
from monque.web.access.redaction import DEFAULT_KEYS, MASK, Redaction, words_of
from monque.web.text import without_credentials

MARKER = "s3cr3t-marker"
_TELLING = st.sampled_from(
    [
        *("password", "userPassword", "USER_PASSWORD", "pwd", "x-auth", "authToken", "apiKey", "API_KEY"),
        *("api.key", "private-key", "PrivateKey", "sessionId", "card_number", "iban", "SSN", "tokens"),
        *("cookie", "Authorization", "client secret", "password1"),
    ]
)
_HARMLESS = st.sampled_from(["author", "key", "name", "tokenizer", "private", "cardinality", "a.b", "$x"])
_MARKED = st.recursive(
    st.just(MARKER),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_HARMLESS, inner, max_size=2),
    max_leaves=4,
)


def _around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(_HARMLESS, inner, max_size=3),
        inner.map(lambda value: DBRef("other", 1, extra=value)),
        inner.map(lambda value: Code("f()", {"value": value})),
    )


_PAYLOADS = st.recursive(
    st.one_of(
        st.none(),
        st.integers(),
        st.text(max_size=5),
        st.dictionaries(_TELLING, _MARKED, min_size=1, max_size=2),
    ),
    _around,
    max_leaves=12,
)


@given(_PAYLOADS)
def test_no_value_of_a_telling_key_survives_in_any_shape(payload: Any) -> None:
    shown = Redaction().value(payload)

    assert MARKER not in json.dumps(plain(shown))
    assert MARKER not in json.dumps(extended(shown))


@pytest.mark.parametrize(
    "key", ["author", "authority", "tokenizer", "keyboard", "cardinality", "apikeys2x", "sessional"]
)
def test_a_key_that_only_looks_like_a_telling_one_stays(key: str) -> None:
    shown = Redaction().value({key: 1})

    assert shown == {key: MASK if key == "apikeys2x" else 1}


def test_words_end_at_underscores_dashes_dots_and_humps() -> None:
    assert (
        words_of("APIKey")
        == words_of("api_key")
        == words_of("api-Key")
        == words_of("api.key")
        == ("api", "key")
    )
    assert words_of("dbPASSWORD2") == ("db", "password")


def test_what_is_too_deep_and_what_is_too_long_is_cut_with_a_mark() -> None:
    deep: Any = MARKER
    for _ in range(60):
        deep = {"inner": deep}

    assert MARKER not in json.dumps(Redaction().value(deep))
    assert "too deep" in json.dumps(Redaction().value(deep))
    assert Redaction().value(list(range(1_003)))[-1] == "… 3 more"
    assert len(Redaction().value(list(range(1_000)))) == 1_000


def test_keys_of_ones_own_take_the_place_of_the_defaults() -> None:
    redaction = Redaction(keys=("diagnosis", "blood group"))

    assert redaction.value({"mainDiagnosis": 1, "bloodGroup": 2, "group": 3, "password": 4}) == {
        "mainDiagnosis": MASK,
        "bloodGroup": MASK,
        "group": 3,
        "password": 4,
    }


@pytest.mark.parametrize("keys", ["password", [7], [""], ["--"]])
def test_keys_that_cannot_be_are_refused(keys: Any) -> None:
    with pytest.raises(ConfigurationError, match="redaction keys"):
        Redaction(keys=keys)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("mongodb://ada:pa55@db.example/x", "mongodb://db.example/x"),
        ("mongodb+srv://ada:p%40ss@db.example", "mongodb+srv://db.example"),
        (
            "cannot reach amqp://u:p@h:5672/v, nor redis://:pw@r:6379",
            "cannot reach amqp://h:5672/v, nor redis://r:6379",
        ),
        ("https://token@git.example/a", "https://git.example/a"),
        ("mongodb://u:p@ss@db.example/", "mongodb://db.example/"),
        ("mongodb://u:p/ss@db.example/", "mongodb://db.example/"),
        ("mongodb://u:p/s@s@db.example/", "mongodb://db.example/"),
        ("mongodb://u:p://s@db.example/", "mongodb://db.example/"),
        ("https://example.org:8080/mail?to=a@b.example", "https://example.org:8080/mail?to=a@b.example"),
        ("https://example.org/@ada", "https://example.org/@ada"),
        ("mail ada@example.org", "mail ada@example.org"),
    ],
)
def test_uris_lose_user_and_password(text: str, shown: str) -> None:
    assert without_credentials(text) == shown
    assert Redaction().value({"deep": [text]}) == {"deep": [shown]}


def test_the_default_keys_are_those_of_the_documentation() -> None:
    assert "password" in DEFAULT_KEYS
    assert len(DEFAULT_KEYS) == 15
