"""`python examples/fastapi_shop [--port 8000]`: start the shop."""

import argparse

import uvicorn

parser = argparse.ArgumentParser(prog="fastapi_shop")
parser.add_argument("--port", type=int, default=8000)
uvicorn.run("shop.main:app", port=parser.parse_args().port)
