"""The workers of the application in a process of their own: `python -m shop_app.worker`."""

import asyncio

from monque.fastapi import run_workers
from shop_app.main import app

asyncio.run(run_workers(app))
