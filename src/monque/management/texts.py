"""Rules for text that others wrote, whoever reads it."""

from __future__ import annotations

import re
from typing import TypeGuard

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
    """Whether a stored value is plain text. `bson.Code` is a str, too, that cannot be hashed."""
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
