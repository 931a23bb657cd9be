"""A payload given as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any, NoReturn

import click


def payload(given: str) -> Any:
    """JSON on the command line, or `-` for standard input."""
    text = sys.stdin.read() if given == "-" else given
    try:
        return parse(text)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(
            f'not valid JSON ({error}); quote it for the shell, for example \'{{"to": "ada"}}\''
        ) from error


def parse(text: str) -> Any:
    """Strict JSON.

    Raises:
        ValueError: It is not JSON.
        RecursionError: It is nested too deeply.
    """
    return json.loads(text, parse_constant=_refuse)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
