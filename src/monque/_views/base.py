"""The base of views, and the types of their fields.

A view describes the fields of a value once. HTTP sends them by alias and leaves out what is as usual;
`--json` prints all of them by name. The types are those that are sent: each knows the printed form, too.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from functools import cache
from typing import Annotated, Any, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from monque._views.text import LARGEST, id_text, iso, milliseconds, shown_id, text_of


class Form(NamedTuple):
    """The two written forms of a value of the core. A document may hold whatever somebody stored."""

    sent: Callable[[Any], Any]
    printed: Callable[[Any], Any]


class Secret:
    """Marks a field that only those see who may see payloads."""


def _as_it_is(value: Any) -> Any:
    return value


def _text(value: object) -> str:
    if type(value) is str:  # `bson.Code` is a str, too
        return value
    return str(value) if isinstance(value, Enum) else text_of(value)


Time = Annotated[
    str,
    Form(iso, lambda time: time.isoformat(timespec="milliseconds")),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
Span = Annotated[int, Form(milliseconds, timedelta.total_seconds)]
Id = Annotated[str, Form(id_text, shown_id)]
Text = Annotated[str, Form(_text, _as_it_is)]
Count = Annotated[int, Form(lambda count: min(count, LARGEST), _as_it_is)]


class View(BaseModel):
    """Fields of a value. What is not set does not apply, and is left out over HTTP; None is `null`."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)

    @classmethod
    def read(cls, value: object) -> dict[str, Any]:
        """The fields of a value to be sent that everybody may see, without those that are as usual."""
        shown = {}
        for name, usual, is_unique, sent in _open(cls):  # for each job of a page, so it must be quick
            found = getattr(value, name)
            if found is not usual and (is_unique or found != usual):
                shown[name] = sent(found)
        return shown

    @classmethod
    def printed(cls, value: object) -> dict[str, Any]:
        """All fields of a value for `--json`: times as text, durations in seconds."""
        found = ((field, getattr(value, field.name)) for field in _described(cls))
        return {
            field.name: None if each is field.usual is None else field.form.printed(each)
            for field, each in found
        }

    def dump(self) -> dict[str, Any]:
        """The fields that are set, as values of JSON."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def as_set(self) -> dict[str, Any]:
        """The fields that are set, for a view that has them all and more."""
        return {field: getattr(self, field) for field in self.model_fields_set}


def one(view: type[View]) -> Form:
    """The form of a value that has a view."""
    return Form(view.read, view.printed)


def each(view: type[View]) -> Form:
    """The form of several values that have a view."""
    return Form(
        lambda values: [view.read(value) for value in values],
        lambda values: [view.printed(value) for value in values],
    )


class _Field(NamedTuple):
    name: str
    usual: Any
    """The value that is not sent; of a required field one that there is not."""
    form: Form


@cache
def _described(view: type[View]) -> list[_Field]:
    return [_Field(name, info.default, _form(info)) for name, info in view.model_fields.items()]


@cache
def _open(view: type[View]) -> list[tuple[str, Any, bool, Callable[[Any], Any]]]:
    """The fields that are no secrets: name, usual value, whether that has no equal, and form."""
    infos = view.model_fields
    return [
        (name, usual, usual in (None, PydanticUndefined), form.sent)
        for name, usual, form in _described(view)
        if Secret not in _marks(infos[name])
    ]


def _form(info: FieldInfo) -> Form:
    return next((mark for mark in _marks(info) if isinstance(mark, Form)), Form(_as_it_is, _as_it_is))


def _marks(info: FieldInfo) -> list[Any]:
    """The marks of a field, also those of its type if that may be None."""
    parts = get_args(info.annotation)
    return [*info.metadata, *(mark for part in parts for mark in getattr(part, "__metadata__", ()))]
