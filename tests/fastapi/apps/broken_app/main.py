"""`uvicorn broken_app.main:app`: refuses to start, for a reason named in `BROKEN`."""

import os

from fastapi import FastAPI

from monque import Monque
from monque.fastapi import setup_monque

app = FastAPI()
setup_monque(app, Monque(os.environ["SHOP_URI"]), discover=[f"broken_app.{os.environ['BROKEN']}"])
