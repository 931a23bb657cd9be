"""What a surface refuses, and why; whoever speaks HTTP turns each into a problem.

SurfaceError                    `slug` names the problem, `detail` is for people
├── BadRequestError                  bad-request
├── ForbiddenError                   forbidden: the actor may not do this
│   └── ReadOnlyError                read-only: nobody may, here
├── NotFoundError                    not-found: no such job, schedule, group, instance
│   └── NotOfferedError              not-found: this version, or this collection, has no such thing
├── ConflictError                    conflict: the state does not allow it
│   └── KeyTakenError                key-taken: another active job has the unique key
├── ChangedError                     changed: the job is not what it was when the caller looked at it
├── TooSlowError                     too-slow: the database took longer than the limit
├── TooBusyError                     too-busy: too many questions at once
├── BeingPreparedError               being-prepared: the index that it needs is being built
├── DatabaseAwayError                database-away
├── TooLargeError                    too-large
└── HookFailedError                  internal: code of the user's raised; it is denied, and the text is hidden
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from pymongo.errors import OperationFailure

from monque import (
    ConfigurationError,
    ConnectionError,
    InvalidCursorError,
    JobNotFoundError,
    JobStateError,
    PayloadError,
    PayloadTooLargeError,
    ReadTimeoutError,
)
from monque.management.texts import without_credentials

# Seconds after which a caller may try again. Half as long would find most outages as they were; twice as long
# would keep a page stale after a failover of a few seconds.
_RETRY_AFTER = 2
_UNAUTHORIZED = 13


class SurfaceError(Exception):
    """Base of what a surface raises on purpose.

    Attributes:
        slug: The last part of the problem's type.
        detail: One or two sentences for people, without credentials.
        v1_text: What the contract of `/api/v1` says in this case.
        retry_after: After how many seconds it is worth another try, or None.
    """

    slug: ClassVar[str] = "internal"
    retry_after: int | None = None

    def __init__(self, detail: str, *, v1_text: str | None = None) -> None:
        self.detail = without_credentials(detail)
        self.v1_text = self.detail if v1_text is None else without_credentials(v1_text)
        super().__init__(self.detail)


class BadRequestError(SurfaceError):
    """An argument is wrong; `errors` says where and what, one pair each."""

    slug = "bad-request"

    def __init__(
        self,
        detail: str,
        *,
        errors: Sequence[tuple[str, str]] = (),
        v1_text: str = "Input validation failed",
    ) -> None:
        super().__init__(detail, v1_text=v1_text)
        self.errors = tuple(errors)


class ForbiddenError(SurfaceError):
    """The actor may not do this."""

    slug = "forbidden"


class ReadOnlyError(ForbiddenError):
    """Nobody may change anything through this surface."""

    slug = "read-only"

    def __init__(self) -> None:
        super().__init__("This surface is read-only.", v1_text="Management surface is read-only")


class NotFoundError(SurfaceError):
    """There is no such thing."""

    slug = "not-found"


class NotOfferedError(NotFoundError):
    """This version, or this collection, has no such thing."""


class ConflictError(SurfaceError):
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


class ChangedError(SurfaceError):
    """The job changed since the caller looked at it."""

    slug = "changed"


class TooSlowError(SurfaceError):
    """The database took longer than the limit."""

    slug = "too-slow"


class TooBusyError(SurfaceError):
    """Too many questions at once."""

    slug = "too-busy"
    retry_after = _RETRY_AFTER


class BeingPreparedError(SurfaceError):
    """The index that it needs is being built."""

    slug = "being-prepared"
    retry_after = _RETRY_AFTER


class DatabaseAwayError(SurfaceError):
    """The database cannot be reached, or refused."""

    slug = "database-away"
    retry_after = _RETRY_AFTER


class TooLargeError(SurfaceError):
    """What was sent is larger than allowed."""

    slug = "too-large"


class HookFailedError(SurfaceError):
    """Code of the user's raised while it decided or redacted. `__cause__` is what it raised."""

    def __init__(self, hook: str) -> None:
        super().__init__(f"The hook {hook} raised an error.", v1_text="Internal server error")


@contextmanager
def surface_errors() -> Iterator[None]:
    """Turn errors of the core into those of the surface."""
    try:
        yield
    except JobNotFoundError as error:
        raise NotFoundError(_sentence(error), v1_text="Job not found") from error
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


def _refused_or_away(error: ConnectionError) -> SurfaceError:
    """What the database user may not do is not offered; trying again would not help."""
    if isinstance(error.__cause__, OperationFailure) and error.__cause__.code == _UNAUTHORIZED:
        return NotOfferedError(f"The database user of this surface may not do this. {_sentence(error)}")
    return DatabaseAwayError(_sentence(error))


def _conflict(error: JobStateError) -> ConflictError:
    # The core has no class of its own for a taken key; the action and the word are part of its message.
    is_taken = error.attempted_action == "retry" and "unique key" in str(error)
    return (KeyTakenError if is_taken else ConflictError)(_sentence(error), v1_text=str(error))


def _sentence(error: Any) -> str:
    text = str(error)
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
