"""What failures have in common: the text of an error without what differs from job to job."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from monque.management.texts import without_credentials

# Characters of a shape. Half would put different errors of one validator into one group; twice would part
# errors by what stands at their end.
_LONGEST = 200
# Characters that are looked at: what is replaced may be longer than what stays, and a reason has at most
# some thousand.
_LOOKED_AT = 2_000

_REST = "…"
_UUID = r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b"
_DATE = r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
_TIME = r"\b\d\d?:\d\d:\d\d(?:[.,]\d+)?"

# In this order: what may hold others comes first. Each is only looked for if its first text is there, which
# is ten times quicker: failures come by the ten thousand. None reads a character again and again: an address
# begins where nothing of it stands before, and the path of a URI ends before the next `://`.
_REPLACED = (
    ("'", re.compile(r"(?<!\w)'[^'\n]*'(?!\w)"), f"'{_REST}'"),
    ('"', re.compile(r'"[^"\n]*"'), f'"{_REST}"'),
    ("`", re.compile(r"`[^`\n]*`"), f"`{_REST}`"),
    ("@", re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), _REST),
    ("://", re.compile(r"(\w://(?:[^\s?#:]|:(?!//))*)[?#]\S*"), rf"\1?{_REST}"),
    ("/", re.compile(r"(?<=[\w:/])/[^\s/?,;:)\]}>'\"]+(?=$|[\s?,;:)\]}>'\"])"), f"/{_REST}"),
    ("-", re.compile(_UUID), _REST),
    ("-", re.compile(_DATE), _REST),
    (":", re.compile(_TIME), _REST),
    ("", re.compile(r"\b0[xX][0-9a-fA-F]+\b|\b[0-9a-fA-F]{8,}\b"), _REST),
    ("", re.compile(r"[-+]?\d+(?:[.,]\d+)*(?:[eE][-+]?\d+)?"), _REST),
)
_WORD = re.compile(r"[A-Za-z_][\w.]{0,199}")
# TypeScript stores the text of an error without its type, and its first word may be anything: the type is
# shown to people who may not see texts.
_TYPE = re.compile(r"[A-Za-z_][\w.]{0,190}(?:Error|Exception|Interrupt|Warning|Exit)")


@dataclass(frozen=True, slots=True)
class Shape:
    """What is left of a failure's text: its *fingerprint*, the *type* of the error, and the *sentence*."""

    fingerprint: str
    type: str
    sentence: str


# The newest failures are read again every few seconds, and most of them are the same. Half as many would not
# hold them; twice as many would only take memory.
@lru_cache(maxsize=10_000)
def shape_of(reason: str | None) -> Shape:
    """The shape of a failure's reason, which is the type of the error and its text.

    It does not depend on the job name: the same outage has one fingerprint wherever it strikes.
    """
    line = next(iter((reason or "").strip().splitlines()), "")[:_LOOKED_AT]
    word, _, text = line.partition(":")
    is_named = _WORD.fullmatch(word) is not None and text.strip()
    sentence = _plain(f"{word}: {text.strip()}" if is_named else line)
    kind = word if _TYPE.fullmatch(word) else ""
    return Shape(blake2b(sentence.encode(errors="replace")).hexdigest()[:12], kind, sentence)


def _plain(text: str) -> str:
    text = without_credentials(text)
    for sign, pattern, replacement in _REPLACED:
        if sign in text:
            text = pattern.sub(replacement, text)
    return " ".join(text.split())[:_LONGEST]
