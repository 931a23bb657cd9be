"""`python examples/fastapi_shop/worker.py`: process the shop's jobs without serving requests."""

import asyncio

from shop.main import app

from monque.fastapi import run_workers

asyncio.run(run_workers(app))
