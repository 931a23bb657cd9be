"""Rules for text that others wrote, whoever reads it."""

from __future__ import annotations

import re
from typing import TypeGuard

# The user information of a URI ends at its last `@` before the path. A password with a `/` that nobody
# escaped is cut, too, unless what stands before the `/` is a port; at most 256 characters of it, so that no
# text makes this slow. Half of that would leave long tokens; twice would take twice as long.
_USER_INFO = re.compile(r"://(?:[^/?#\s]*@|[^/?#\s:@\[]*:(?!\d{1,5}(?:[/?#\s]|$))[^\s@]{0,256}@)")


def is_text(value: object) -> TypeGuard[str]:
    """Whether a stored value is plain text. `bson.Code` is a str, too, that cannot be hashed."""
    return type(value) is str


def without_credentials(text: str) -> str:
    """The text, with no user and password in any URI."""
    return _USER_INFO.sub("://", text) if "@" in text and "://" in text else text
