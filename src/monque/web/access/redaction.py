"""Redaction of payloads and of the texts of errors.

First a hook of the user's decides what this actor may see of this job. Then values of telling keys
are masked at any depth, URIs lose user and password, and what is too deep or too long is cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from inspect import isawaitable
from typing import Any, TypeAlias

from bson import Code, DBRef

from monque import ConfigurationError, Job
from monque.web.access.permissions import Actor
from monque.web.errors import HookFailedError
from monque.web.text import is_text, without_credentials

MASK = "•••"

DEFAULT_KEYS = (
    "password", "passwd", "pwd", "secret", "token", "authorization", "auth", "apikey", "cookie", "session",
    "card", "iban", "ssn", "api key", "private key",
)  # fmt: skip

# Nobody reads deeper or longer than this on a page.
_DEEPEST = 40
_LONGEST_LIST = 1_000
# Characters of a key that are looked at: what is longer is data, and nobody names a password so.
_LONGEST_KEY = 1_000

RedactionHook: TypeAlias = Callable[[Job[Any], Any, Actor], Any]
"""Gets the job, a value of it and the actor; returns, or awaits, what that actor may see of the value."""

Words: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """The rules by which payloads and error texts are hidden before they leave the dashboard.

    Attributes:
        keys: A value is masked if the words of its key include one of these. `_`, `-`, `.` and camelCase
            part words; case does not count, nor does a plural's s.
        hook: Decides what an actor may see of a payload. The keys are masked in what it returns.
        by_name: The same for single job names, in place of *hook*. It is asked about the payload, the result
            and the texts (one text with the failures, log lines, progress, reasons and keys of a job).
            Unless it returns all of them as they are, this actor sees what it made of the payload, and
            neither the result nor any of the texts.
        text: Applied to failure texts and tracebacks.

    What a hook cannot deal with, because it raises, is hidden.

    Examples:
        >>> Redaction(keys=(*DEFAULT_KEYS, "diagnosis"), by_name={"pay-out": lambda job, data, actor: None})
    """

    keys: Sequence[str] = DEFAULT_KEYS
    hook: RedactionHook | None = None
    by_name: Mapping[str, RedactionHook] = field(default_factory=dict)
    text: Callable[[str], str] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.keys, str) or not all(isinstance(key, str) and words_of(key) for key in self.keys):
            raise ConfigurationError(f"redaction keys must be texts such as 'password', got {self.keys!r}")
        object.__setattr__(self, "keys", tuple(self.keys))
        for hook in (self.hook, self.text, *self.by_name.values()):
            if hook is not None and not callable(hook):
                raise ConfigurationError(f"a hook of a Redaction must be callable, got {hook!r}")

    async def payload(self, job: Job[Any], data: Any, actor: Actor) -> Any:
        """Return the part of a job's payload that this actor may see.

        Raises:
            HookFailedError: The hook raised.
        """
        hook = self.hook_of(job.name)
        return self.value(data if hook is None else await _ask(hook, job, data, actor))

    def hook_of(self, name: object) -> RedactionHook | None:
        """The hook that decides about the payloads of a job name."""
        return self.own_hook_of(name) or self.hook

    def own_hook_of(self, name: object) -> RedactionHook | None:
        """The hook of a job name alone; others may have stored a name that is no text."""
        return self.by_name.get(name) if is_text(name) else None

    async def shows_all(self, job: Job[Any], actor: Actor) -> bool:
        """Tell whether this actor may see the result and the texts of a job.

        A hook of a name knows its payloads. What it hides in them may stand in the rest, too, so it has to
        let all of it pass.
        """
        hook = self.own_hook_of(job.name)
        if hook is None:
            return True
        if job.payload_size is not None:  # it was not read
            return False
        kept = [job.result, *(step.value for step in job.steps), *(each.value for each in job.signals)]
        values = [job.data, *(value for value in kept if value is not None), _texts_of(job)]
        try:
            return all([await _ask(hook, job, value, actor) == value for value in values])
        except HookFailedError:
            return False

    async def shows(self, job: Job[Any], path: str, value: Any, actor: Actor) -> bool:
        """Tell whether this actor would see a value at a path of this job's payload, if it were there."""
        try:
            shown = await self.payload(job, with_value(job.data, path, value), actor)
        except HookFailedError:
            return False
        return has_value(shown, path, value)

    def masks(self, path: str, value: Any) -> bool:
        """Tell whether nobody sees a value at a path: its key is telling, or it has credentials."""
        return not has_value(self.value(with_value(None, path, value)), path, value)

    def value(self, value: Any) -> Any:
        """Mask telling keys and credentials in any value, and cut what is too deep or too long."""
        return _clean(value, _told_apart(tuple(self.keys)), 0)

    def error_text(self, text: str) -> str:
        """A failure's text or traceback as it may be shown.

        Raises:
            HookFailedError: The hook raised, or returned no text.
        """
        if self.text is not None:
            try:
                text = self.text(text)
                if not isinstance(text, str):
                    raise TypeError(f"it returned {type(text).__name__} instead of a text")
            except Exception as error:
                raise HookFailedError("text of the redaction") from error
        return without_credentials(text)


async def _ask(hook: RedactionHook, job: Job[Any], value: Any, actor: Actor) -> Any:
    try:
        # A copy: what was read is shared with other callers, and a hook may change it in place.
        shown = hook(job, deepcopy(value), actor)
        return await shown if isawaitable(shown) else shown
    except Exception as error:
        raise HookFailedError("of the redaction") from error


def _texts_of(job: Job[Any]) -> str:
    progress = None if job.progress is None else job.progress.message
    texts = [job.fail_reason, job.unique_key, job.cancel_reason, job.result_error, progress]
    texts += [each.line for each in (job.turn, job.waits_for) if each is not None]
    texts += [line.text for line in job.log]
    texts += [text for attempt in job.history for text in (attempt.message, attempt.traceback)]
    return "\n".join(filter(is_text, texts))


def _clean(value: Any, telling: frozenset[Words], depth: int) -> Any:
    if isinstance(value, str):
        return _clean_code(value, telling, depth) if isinstance(value, Code) else without_credentials(value)
    if isinstance(value, DBRef):
        value = value.as_doc()
    if isinstance(value, Mapping):
        if depth >= _DEEPEST:
            return {"$cut": "too deep"}
        return {
            without_credentials(str(key)): MASK
            if is_telling(str(key), telling)
            else _clean(each, telling, depth + 1)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        if depth >= _DEEPEST:
            return ["… too deep"]
        items = list(value)
        kept = [_clean(each, telling, depth + 1) for each in items[:_LONGEST_LIST]]
        return kept if len(items) <= _LONGEST_LIST else [*kept, f"… {len(items) - _LONGEST_LIST:,} more"]
    return value


def _clean_code(code: Code, telling: frozenset[Words], depth: int) -> Any:
    """Code is a text that may have a scope, which is a document."""
    text = without_credentials(str.__str__(code))
    scope = code.scope
    return Code(text) if scope is None else {"$code": text, "$scope": _clean(scope, telling, depth)}


# The ends of words: before an upper-case letter that follows a lower-case one, before the last of several
# upper-case letters that a lower-case one follows (APIKey), and at whatever is no letter.
_WORD = re.compile(r"[^\W\d_]+")
_CAMEL = re.compile(r"(?<=[a-zß-ÿ])(?=[A-ZÀ-Þ])|(?<=[A-ZÀ-Þ])(?=[A-ZÀ-Þ][a-zß-ÿ])")


def words_of(key: str) -> Words:
    """`apiKey`, `API_KEY`, `api-key` and `APIKey` all are `("api", "key")`."""
    return tuple(word.casefold() for word in _WORD.findall(_CAMEL.sub(" ", key)))


@lru_cache(maxsize=64)
def _told_apart(keys: tuple[str, ...]) -> frozenset[Words]:
    return frozenset(words_of(key) for key in keys)


# Keys repeat from job to job; few payloads have more than some hundred of them.
@lru_cache(maxsize=4096)
def is_telling(key: str, telling: frozenset[Words]) -> bool:
    """Return whether the words of a key include one of these, which may be several words in a row."""
    words = words_of(key[:_LONGEST_KEY])
    lengths = {len(each) for each in telling}
    rows = (words[start : start + length] for start in range(len(words)) for length in lengths)
    return any(row in telling or _singular(row) in telling for row in rows if row)


def _singular(words: Words) -> Words:
    return (*words[:-1], words[-1].removesuffix("s"))


def with_value(data: Any, path: str, value: Any) -> Any:
    """A payload that has this value at a path of a filter; else as *data*, as far as that leads there."""
    first, _, rest = path.partition(".")
    if isinstance(data, list) and data:
        return [with_value(each, rest if first.isdecimal() and rest else path, value) for each in data]
    fields = dict(data) if isinstance(data, Mapping) else {}
    return {**fields, first: with_value(fields.get(first), rest, value) if rest else value}


def has_value(shown: Any, path: str, value: Any) -> bool:
    """Tell whether what is shown of such a payload has the value wherever the path leads."""
    found = _at(shown, path)
    return bool(found) and all(type(each) is type(value) and each == value for each in found)


def _at(data: Any, path: str) -> list[Any]:
    """The values that a filter finds at a path: in an array, of each element."""
    if not path:
        return [data]
    first, _, rest = path.partition(".")
    if isinstance(data, list):
        return [found for each in data for found in _at(each, rest if first.isdecimal() else path)]
    return _at(data[first], rest) if isinstance(data, Mapping) and first in data else []
