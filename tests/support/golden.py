"""Golden files: what users hold, written down; a change of it must be seen in a diff.

`MONQUE_WRITE_GOLDEN=1 python -m pytest tests/golden` writes them anew.
"""

from __future__ import annotations

import json
import os
import re
from datetime import datetime
from difflib import unified_diff
from pathlib import Path
from typing import Any

from bson import ObjectId

FOLDER = Path(__file__).parents[1] / "golden"

_VOLATILE = (
    (re.compile(r"\b[0-9a-f]{24}\b"), "<id>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d| UTC)?"), "<time>"),
    (re.compile(r"\b\d+(\.\d+)?(ms|s)\b|\b\d+ h \d+ min\b"), "<duration>"),
    (re.compile(r'File ".*", line \d+'), 'File "<file>", line <n>'),
)


def assert_golden(name: str, text: str) -> None:
    """Compare with the golden file of this name; write it if that was asked for."""
    path = FOLDER / name
    text = text.rstrip("\n") + "\n"
    if os.environ.get("MONQUE_WRITE_GOLDEN"):
        path.write_text(text)
    known, found = path.read_text().splitlines(), text.splitlines()
    changes = "\n".join(unified_diff(known, found, "golden", "now", n=1, lineterm=""))
    assert not changes, f"{name} has changed; see tests/support/golden.py\n{changes}"


def as_json(value: Any) -> str:
    """Readable JSON with sorted keys, in which all that differs between two runs is a placeholder."""
    return json.dumps(masked(value), indent=1, sort_keys=True, ensure_ascii=False)


def masked(value: Any) -> Any:
    """The value with placeholders for ids, times and measured durations; their types stay visible."""
    if isinstance(value, dict):
        return {str(key): masked(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [masked(each) for each in value]
    if isinstance(value, ObjectId):
        return "<ObjectId>"
    if isinstance(value, datetime):
        return "<date>"
    if isinstance(value, float):
        return "<float>"
    if isinstance(value, str):
        for pattern, placeholder in _VOLATILE:
            value = pattern.sub(placeholder, value)
    return value
