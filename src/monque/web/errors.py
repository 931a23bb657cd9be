"""Problems: refusals of a request, and their reasons, as RFC 9457 has them.

Problem                         `slug` names the kind, `detail` is for people
├── BadRequestError                  bad-request
├── ForbiddenError                   forbidden: the actor may not do this
│   └── ReadOnlyError                read-only: nobody may, here
├── NotFoundError                    not-found: no such path, job, schedule, group, instance
│   └── NotOfferedError              not-found: this version, or this collection, has no such thing
├── ConflictError                    conflict: the state does not allow it
│   └── KeyTakenError                key-taken: another active job has the unique key
├── ChangedError                     changed: the job is not what it was when the caller looked at it
├── TooSlowError                     too-slow: the answer did not come in time
├── TooBusyError                     too-busy: too many questions at once
├── BeingPreparedError               being-prepared: the index that it needs is being built
├── DatabaseAwayError                database-away
├── TooLargeError                    too-large
└── HookFailedError                  internal: code of the user's raised; it is denied, and the text is hidden
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError
from pymongo.errors import OperationFailure

from monque import (
    ConfigurationError,
    ConnectionError,
    InvalidCursorError,
    JobChangedError,
    JobNotFoundError,
    JobStateError,
    PayloadError,
    PayloadTooLargeError,
    ReadTimeoutError,
)
from monque.web.text import shown, without_credentials

# Each slug with its status and title. Problems of one slug may have a status of their own.
SLUGS: dict[str, tuple[int, str]] = {
    "bad-request": (400, "Bad request"),
    "unauthenticated": (401, "Not authenticated"),
    "forbidden": (403, "Forbidden"),
    "read-only": (403, "Read-only"),
    "not-found": (404, "Not found"),
    "conflict": (409, "Conflict"),
    "key-taken": (409, "The unique key is taken"),
    "changed": (412, "Changed meanwhile"),
    "too-large": (413, "Too large"),
    "internal": (500, "Internal server error"),
    "too-busy": (503, "Too busy"),
    "being-prepared": (503, "Being prepared"),
    "database-away": (503, "The database does not answer"),
    "not-built": (503, "The pages are not built"),
    "too-slow": (504, "Too slow"),
}
_TITLES = {
    405: "Method not allowed",
    406: "Not acceptable",
    414: "Query too long",
    415: "Unsupported media type",
    429: "Too many wrong secrets",
}
_HIDDEN = "Something went wrong on the server. Its log says more, under the id of this request."
# After so many seconds a caller may try again: a failover takes a few.
_SOON = {"retry-after": "2"}
_UNAUTHORIZED = 13


class Problem(Exception):  # noqa: N818 - RFC 9457 calls it so
    """The reason why a request is not answered as its sender wished.

    Attributes:
        slug: The last part of its type.
        detail: One or two sentences for people, without credentials.
        errors: Where and what is wrong, one pair for each mistake in a query or a body.
        headers: Headers that the answer has because of it.
        v1_text: What the contract of `/api/v1` says in this case.
        advice: What somebody can do about it who sees it as a page.
    """

    slug = "internal"
    headers: Mapping[str, str] = {}

    def __init__(
        self,
        detail: str,
        *,
        slug: str | None = None,
        status: int = 0,
        errors: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        v1_text: str | None = None,
        advice: str | None = None,
    ) -> None:
        self.slug = slug or self.slug
        self.detail = without_credentials(detail)
        self.errors = tuple(errors)
        self.headers = self.headers if headers is None else headers
        self.v1_text = self.detail if v1_text is None else without_credentials(v1_text)
        self.advice = advice
        self._status = status
        super().__init__(self.detail)

    @property
    def code(self) -> int:
        """The HTTP status."""
        return self._status or SLUGS[self.slug][0]

    @property
    def title(self) -> str:
        """A few words that are the same for all problems of this kind."""
        return _TITLES.get(self._status, SLUGS[self.slug][1])


class BadRequestError(Problem):
    """An argument is wrong; `errors` says where and what, one pair each."""

    slug = "bad-request"

    def __init__(
        self, detail: str, *, errors: Sequence[tuple[str, str]] = (), v1_text: str = "Input validation failed"
    ) -> None:
        super().__init__(detail, errors=errors, v1_text=v1_text)


class ForbiddenError(Problem):
    """The actor may not do this."""

    slug = "forbidden"


class ReadOnlyError(ForbiddenError):
    """Nobody may change anything here."""

    slug = "read-only"

    def __init__(self) -> None:
        super().__init__("This dashboard is read-only.", v1_text="Management surface is read-only")


class NotFoundError(Problem):
    """There is no such thing."""

    slug = "not-found"


class NotOfferedError(NotFoundError):
    """This version, or this collection, has no such thing."""


class ConflictError(Problem):
    """The state of the job does not allow it."""

    slug = "conflict"


class KeyTakenError(ConflictError):
    """Another active job has the unique key."""

    slug = "key-taken"

    @property
    def discreet(self) -> KeyTakenError:
        """The same for whoever may not see unique keys."""
        before, _, key = self.v1_text.partition("unique key ")
        return KeyTakenError(f"{before}unique key is held{key.rpartition(' is held')[2]}")


class ChangedError(Problem):
    """The job changed since the caller looked at it."""

    slug = "changed"


class TooSlowError(Problem):
    """The answer did not come in time."""

    slug = "too-slow"


class TooBusyError(Problem):
    """Too many questions at once."""

    slug = "too-busy"
    headers = _SOON


class BeingPreparedError(Problem):
    """The index that it needs is being built."""

    slug = "being-prepared"
    headers = _SOON


class DatabaseAwayError(Problem):
    """The database cannot be reached, or refused."""

    slug = "database-away"
    headers = _SOON


class TooLargeError(Problem):
    """A body is larger than allowed."""

    slug = "too-large"


class HookFailedError(Problem):
    """Code of the user's raised while it decided or redacted. `__cause__` is what it raised."""

    def __init__(self, hook: str) -> None:
        super().__init__(f"The hook {hook} raised an error.", v1_text="Internal server error")


@contextmanager
def surface_errors() -> Iterator[None]:
    """Turn errors of the core into problems."""
    try:
        yield
    except JobNotFoundError as error:
        raise NotFoundError(_sentence(error), v1_text="Job not found") from error
    except JobChangedError as error:
        raise ChangedError(_sentence(error)) from error
    except JobStateError as error:
        raise _conflict(error) from error
    except InvalidCursorError as error:
        raise BadRequestError(
            _sentence(error), errors=[("cursor", str(error))], v1_text=str(error)
        ) from error
    except ReadTimeoutError as error:
        raise TooSlowError(_sentence(error) + _quicker(error)) from error
    except PayloadTooLargeError as error:
        raise TooLargeError(_sentence(error)) from error
    except (ConfigurationError, PayloadError) as error:
        raise BadRequestError(_sentence(error)) from error
    except ConnectionError as error:
        raise _refused_or_away(error) from error


def _quicker(error: ReadTimeoutError) -> str:
    if not isinstance(error.__cause__, OperationFailure):
        return ""  # the server did not answer: no index would help
    return " Lists in another order than by id are quicker after: monque indexes --create --listing"


def _refused_or_away(error: ConnectionError) -> Problem:
    """Tell a missing right of the database user, which no retry helps, from an outage."""
    if isinstance(error.__cause__, OperationFailure) and error.__cause__.code == _UNAUTHORIZED:
        return NotOfferedError(f"The database user that is used here may not do this. {_sentence(error)}")
    return DatabaseAwayError(_sentence(error))


def _conflict(error: JobStateError) -> ConflictError:
    # The core has no class of its own for a taken key; the action and the word are part of its message.
    is_taken = error.attempted_action == "retry" and "unique key" in str(error)
    return (KeyTakenError if is_taken else ConflictError)(_sentence(error), v1_text=str(error))


def _sentence(error: Any) -> str:
    text = str(error)
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def internal(detail: str = _HIDDEN) -> Problem:
    """A bug, ours or of a hook. Its text is in the log only."""
    return Problem(detail, v1_text="Internal server error")


def invalid(error: ValidationError, where: str) -> BadRequestError:
    """A query or a body does not fit its model. What was sent is not repeated: it may be secret."""
    errors = [
        (".".join([where, *(shown(str(part)) for part in each["loc"])]), _what(each["type"], each["msg"]))
        for each in error.errors(include_url=False, include_context=False, include_input=False)[:20]
    ]
    return bad_request(errors)


def bad_request(errors: Sequence[tuple[str, str]]) -> BadRequestError:
    """A query or a body is wrong at these places."""
    return BadRequestError("; ".join(f"{where}: {what}" for where, what in errors) + ".", errors=errors)


def _what(kind: str, message: str) -> str:
    if kind == "extra_forbidden":
        return "there is no such field"
    if kind == "model_type":
        return "it must be an object"
    return (message[:1].lower() + message[1:]).removeprefix("value error, ")
