"""The Monque of an application, for its routes and jobs."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from fastapi.requests import HTTPConnection

from monque import ConfigurationError, Monque


async def get_monque(connection: HTTPConnection) -> Monque:
    """The Monque that `setup_monque` gave to the application."""
    monque = getattr(connection.app.state, "monque", None)
    if not isinstance(monque, Monque):
        raise ConfigurationError("this application has no Monque; call setup_monque(app, monque) first")
    return monque


MonqueDep = Annotated[Monque, Depends(get_monque)]
"""A parameter of this type is the Monque of the application, in routes and in jobs."""
