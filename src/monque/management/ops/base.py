"""What all answers and questions of `/api/ops/v1` share."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, WithJsonSchema
from pydantic.alias_generators import to_camel

from monque.management.errors import BadRequestError
from monque.management.values import moment_of

_TIME = {"type": "string", "format": "date-time"}


def _time(given: object) -> datetime:
    try:
        return moment_of(given, "")
    except BadRequestError as error:
        raise ValueError(error.errors[0][1]) from None


Moment = Annotated[str, WithJsonSchema(_TIME)]
"""A time in an answer: ISO 8601 in UTC, with milliseconds and Z."""

Time = Annotated[datetime, BeforeValidator(_time), WithJsonSchema(_TIME)]
"""A time in a question: the same; an offset or a date alone is refused."""

Span = Annotated[int, Field(ge=0, le=100 * 365 * 24 * 3_600_000)]
"""A duration in a question: milliseconds, up to the core's hundred years."""

# Twice as long is no note any more; half would cut a ticket's title with its address.
Note = Annotated[
    Annotated[str, StringConstraints(max_length=1_000)] | None,
    BeforeValidator(lambda given: None if isinstance(given, str) and not given.strip() else given),
]
"""What an operator says about an action, or None; a blank one, as forms send it, is none."""


class Dto(BaseModel):
    """Part of an answer. What is not set does not apply, and is left out; None is `null`."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)

    def dump(self) -> dict[str, Any]:
        """The answer as values of JSON."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def as_set(self) -> dict[str, Any]:
        """The fields that are set, for a model that has them all and more."""
        return {field: getattr(self, field) for field in self.model_fields_set}


class Answer(Dto):
    """A whole answer: ages are counted from *server_time*, never from the reader's clock."""

    server_time: Moment


class Question(BaseModel):
    """A query or a body: unknown fields are refused."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="forbid")


class Body(Question):
    """A body: a text is no number."""

    model_config = ConfigDict(strict=True)
