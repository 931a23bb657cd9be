"""The OpenAPI 3.1 document: the contract of `/api/v1` as it is, and what our routes and models say."""

from __future__ import annotations

import json
from copy import deepcopy
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def contract() -> dict[str, Any]:
    """The contract of `/api/v1`."""
    loaded: dict[str, Any] = json.loads(files("monque.web").joinpath("contract.json").read_text("utf-8"))
    return loaded


def document(prefix: str) -> dict[str, Any]:
    """The document of a dashboard that is mounted at *prefix*."""
    whole = deepcopy(contract())
    whole["servers"] = [{"url": prefix or "/"}]
    return whole
