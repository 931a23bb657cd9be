"""A request of the page in other languages."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from monque.management.ops.base import Answer, Body, Dto


class OpsRequest(Body):
    """A request to this API; *path* begins after `/api/ops/v1` and has its query."""

    method: Literal["GET", "POST", "PUT", "DELETE"] = "GET"
    path: str = Field(pattern="^/", max_length=8192)
    body: dict[str, Any] | None = None
    name: str | None = Field(None, description="of a schedule: commands find it by its name and its key")
    key: str | None = Field(None, description="of a schedule")


class OpsCopyBody(Body):
    """Requests to be written in other languages."""

    root: str = Field(max_length=2000, description="where the dashboard is, with a slash at its end")
    requests: list[OpsRequest] = Field(max_length=20)


class OpsWay(Dto):
    """A request as a command, as Python and as curl; what has no such form is left out."""

    command: str | None = None
    python: str | None = None
    curl: str


class OpsWays(Answer):
    """One for each request, in their order."""

    ways: list[OpsWay]
