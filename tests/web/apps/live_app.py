"""Served by uvicorn in tests: a dashboard two mounts deep, and how many commands it has sent."""

from __future__ import annotations

import os
from datetime import timedelta

from pymongo import AsyncMongoClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from monque import Monque, Options
from monque.web import Limits, dashboard
from support.traffic import Traffic

traffic = Traffic()
client = AsyncMongoClient(os.environ["MONQUE_URI"], tz_aware=True, event_listeners=[traffic])
monque = Monque(client.get_default_database(), options=Options(trends=None, register=False))
board = dashboard(monque, limits=Limits(tick=timedelta(milliseconds=200)))


async def commands(_request: Request) -> JSONResponse:
    return JSONResponse(sum(traffic.sent.values()))


app = Starlette(
    routes=[Route("/commands", commands), Mount("/ops", routes=[Mount("/monque", board)])],
)
