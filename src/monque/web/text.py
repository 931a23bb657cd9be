"""Rules for text that others wrote, and texts that the pages show."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import TypeGuard
from urllib.parse import quote

from cronsim import CronSim, CronSimError

from monque import OPERATIONS

# A user and the colon before a password. A port looks the same, unless something else than a path follows.
_USER = r"://[^/?#\s:@\[]*:(?!\d{1,5}[/?#])"
# Characters of a password with a `/` that nobody escaped. Half would leave long tokens; twice would take more
# of a text in which an `@` follows an address by chance.
_LONGEST_PASSWORD = 256
# User information ends at the last `@` before the path. The first group is all of it; if there is none, or if
# another `://` stands in it, the second group is the `@` that may end it. A match consumes all that was read
# up to the next `://`: no text is read again and again.
_TO_AT = re.compile(
    rf"((?:://[^/?#\s]*|{_USER}(?:[^\s@:]|:(?!//)){{0,{_LONGEST_PASSWORD}}})@(?:[^/?#\s]*@)?)"
    r"|://[^\s@]*(@(?:[^/?#\s]*@)?)?"
)
_USER_AND_COLON = re.compile(_USER)


def is_text(value: object) -> TypeGuard[str]:
    """Return whether a stored value is plain text. `bson.Code` is a str, too, that cannot be hashed."""
    return type(value) is str


def without_credentials(text: str) -> str:
    """The text, with no user and password in any URI."""
    return _TO_AT.sub(_without_user, text) if "@" in text and "://" in text else text


def _without_user(found: re.Match[str]) -> str:
    if found[1]:
        return "://"
    if not found[2]:
        return found[0]
    text = found[0]
    at = text.find("@")
    for user in _USER_AND_COLON.finditer(text, 0, at):
        if at - user.end() <= _LONGEST_PASSWORD:
            return text[: user.start()] + "://"
    # User information without a `/` follows the last `://`.
    start = text.rfind("://", 0, at)
    return text if any(sign in text[start + 3 : at] for sign in "/?#") else text[: start + 3]


def shown(text: str) -> str:
    """Return text of a client as it may stand in an answer: short, and without control characters."""
    return re.sub(r"[^\x20-\x7e]", "?", text[:100])


_ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
# Texts longer than this were never accepted by a scheduler: somebody else stored them.
_LONGEST = 200


@lru_cache(maxsize=256)  # a collection has few schedules
def words_of(cron: str) -> str | None:
    """Return an expression in words, such as "At 09:00, Monday through Friday"; None if it cannot be read."""
    if len(cron) > _LONGEST:
        return None
    try:
        return CronSim(_ALIASES.get(cron.strip().lower(), cron), datetime.now(UTC)).explain()
    except (CronSimError, ValueError, IndexError):
        return None


_PAGES: Mapping[str, Callable[[str], str]] = {
    "job": lambda what: f"jobs/{quote(what, safe='')}",
    "schedule": lambda what: f"schedules/{quote(what, safe='')}",
    "group": lambda what: f"failures/{quote(what, safe='')}",
    "instance": lambda what: f"instance?id={quote(what, safe='')}",
    "queue": lambda what: f"queue?name={quote(what, safe='')}",
    "batch": lambda what: f"batch?label={quote(what, safe='')}",
    "failures": lambda what: f"failures?name={quote(what, safe='')}",
    # The doctor's findings stand on the first screen.
    "doctor": lambda _: "",
}


def href_of(link: str | None) -> str | None:
    """The path of what the core names as `job:ID`, `queue:NAME` and so on; None for what has no page."""
    kind, _, what = (link or "").partition(":")
    return _PAGES[kind](what) if kind in _PAGES else None


_WORDS = {
    **{each.name: each.name.replace("-", " ") for each in OPERATIONS.values()},
    **{f"{each.name}Bulk": each.many for each in OPERATIONS.values()},
    "canary": "retry as a canary",
    "signal": "send a signal",
    "schedule": "store a schedule",
    "schedule-edit": "edit a schedule",
    "schedule-pause": "pause a schedule",
    "schedule-resume": "resume a schedule",
    "schedule-run-now": "run a schedule now",
    "unschedule": "delete a schedule",
    "createIndexes": "create indexes",
}
_NAMES = {words: action for action, words in _WORDS.items()}

KINDS_OF_ACTIONS: Mapping[str, tuple[str, ...]] = {
    words: (action, f"{action}Bulk") if action in OPERATIONS else (action,)
    for action, words in _WORDS.items()
    if not action.endswith("Bulk")
}
"""The names of actions by what they do: to one job or to many is the same."""


def words_for(action: str) -> str:
    """The words for an action; one that is not known here stands for itself."""
    return _WORDS.get(action, action)


def action_named(text: str) -> str:
    """The action that these words stand for, as somebody types them who has read them on a page."""
    return _NAMES.get(text.strip().lower(), text)
