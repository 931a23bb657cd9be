"""As `calls.py`, for the dashboard of `monque.web`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type

from starlette.requests import HTTPConnection

from monque import Job, Monque
from monque.web import (
    DEFAULT_KEYS,
    Access,
    Action,
    Actor,
    BasicAuth,
    BearerAuth,
    Dashboard,
    FirstOf,
    Limits,
    LoopbackOnly,
    Redaction,
    dashboard,
)

monque = Monque("mongodb://localhost/shop")


def by_header(connection: HTTPConnection) -> Actor | None:
    return Actor(connection.headers["x-user"], may={Action.READ}, details={"team": "shop"})


async def by_session(connection: HTTPConnection) -> Actor | None:
    return None


async def authorize(access: Access) -> bool:
    assert_type(access.action, Action)
    assert_type(access.job, Job[Any] | None)
    return access.action is not Action.DELETE_BULK


def hide(job: Job[Any], payload: Any, actor: Actor) -> Any:
    return None


def dashboards() -> None:
    assert_type(dashboard(monque), Dashboard)
    dashboard(monque, auth=None)
    dashboard(monque, auth=BasicAuth({"ada": "secret"}), authorize=authorize, read_only=True)
    dashboard(monque, auth=by_header, authorize=lambda access: True, allow_enqueue=True, ui=False)
    dashboard(monque, auth=FirstOf(LoopbackOnly(), BearerAuth({"ci": "token"}), by_session))
    dashboard(
        monque,
        redact=Redaction(keys=(*DEFAULT_KEYS, "diagnosis"), hook=hide, by_name={"pay": hide}, text=str.upper),
        title="Shop",
        badge="production",
        links={"wiki": "https://wiki.example.org"},
        root_path="/ops",
        allowed_hosts=["ops.example.org"],
        allowed_origins=["https://intranet.example.org"],
        frame_ancestors=["https://intranet.example.org"],
        limits=Limits(page=50, query_timeout=timedelta(seconds=2)),
    )
    dashboard(monque, auth="ada")  # type: ignore[arg-type]
    dashboard(monque, auth=lambda connection: "ada")  # type: ignore[arg-type, return-value]
    dashboard(monque, readonly=True)  # type: ignore[call-arg]


async def life() -> None:
    async with dashboard(monque) as board:
        assert_type(board, Dashboard)
    await board.close()
