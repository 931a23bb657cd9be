"""A payload given as JSON."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import click


class Payload(click.ParamType):
    """JSON on the command line, or `-` for standard input."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = click.get_text_stream("stdin").read() if value == "-" else value
        try:
            return json.loads(text, parse_constant=_refuse)
        except ValueError as error:
            self.fail(f"not valid JSON ({error}); quote it for the shell: '{{\"to\": \"ada\"}}'", param, ctx)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
