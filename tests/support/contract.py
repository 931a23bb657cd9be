"""The contract of `/api/v1`, as TypeScript has it, and whether an answer keeps to it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

FILE = Path(__file__).parents[1] / "interop" / "fixtures" / "management-openapi.json"


@cache
def _validator(schema: str) -> Draft202012Validator:
    document = json.loads(FILE.read_text())
    return Draft202012Validator(
        {"$ref": f"#/components/schemas/{schema}", "components": document["components"]},
        format_checker=FormatChecker(),
    )


def keeps_to(schema: str, answer: Any) -> Any:
    """Return *answer* as a client reads it, if it is what the contract says; else raise."""
    read = json.loads(json.dumps(answer, allow_nan=False))
    _validator(schema).validate(read)
    return read
