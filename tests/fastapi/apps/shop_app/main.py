"""The application: `uvicorn shop_app.main:app`. It says what happens to it."""

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from fastapi import FastAPI

from monque import Monque, Options
from monque.fastapi import MonqueDep, health_router, setup_monque
from shop_app.connections import given, set_up
from shop_app.jobs.orders import Order
from shop_app.services import Warehouse, say

if level := os.environ.get("SHOP_LOGGING", "INFO"):
    logging.basicConfig(level=level)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with set_up():
        app.state.warehouse = Warehouse()
        say("app up")
        yield
        say("app down")


app = FastAPI(lifespan=lifespan)
monque = Monque(
    given(),
    options=Options(
        shutdown_timeout=timedelta(seconds=float(os.environ.get("SHOP_TIMEOUT", "30"))),
        trends=None,
        register=False,
    ),
)
app.include_router(health_router(monque))
setup_monque(app, monque, discover=["shop_app.jobs"], process_jobs=os.environ.get("SHOP_PROCESS") != "no")


@app.post("/orders")
async def create_order(order: Order, monque: MonqueDep) -> dict[str, str]:
    stored = await monque.enqueue("process-order", order)
    return {"job": str(stored.id)}


@app.post("/slow/{name}")
async def start_slow(name: str, monque: MonqueDep) -> dict[str, str]:
    return {"job": str((await monque.enqueue(f"slow.{name}")).id)}


@app.get("/jobs/{job_id}")
async def get_job(job_id: str, monque: MonqueDep) -> dict[str, Any]:
    found = await monque.get_job(job_id)
    assert found is not None
    return {"status": found.status, "name": found.name, "data": found.data}


@app.get("/workers")
async def get_workers(monque: MonqueDep) -> list[str]:
    return [view.name for view in await monque.queue_views() if view.has_registered_worker]
