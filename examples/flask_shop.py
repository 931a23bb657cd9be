"""A shop on Flask: an order stores a job, and a worker in a process of its own runs it.

    python examples/flask_shop.py [--port 8000]

Then order something, and look at what its jobs have done. The dashboard is at
http://localhost:8000/monque/?key=…, with the key in the file that the log names when you open it.

    curl localhost:8000/orders -d item=book -d email=ada@example.org
    curl localhost:8000/orders

In production these are two commands, from this folder:

    gunicorn --threads 8 'flask_shop:create_app()'
    flask --app flask_shop monque worker
"""

import argparse
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from flask import Flask, current_app, g, request

from monque import Job, JobFilter
from monque.flask import FlaskMonque

monque = FlaskMonque()


@dataclass
class Order:
    item: str
    email: str


@monque.job("process-order", concurrency=3, store_result=True)
def process_order(job: Job[Order]) -> str:
    send_email.enqueue(job.data)
    return "shipped"


@monque.job("send-email", concurrency=10)
def send_email(job: Job[Order]) -> None:
    g.sender = current_app.config["SENDER"]
    print(f"mail of {g.sender} to {job.data.email}: your {job.data.item} is on its way", flush=True)


@monque.cron("0 9 * * MON-FRI", timezone="Europe/Berlin")
def morning_report(_job: Job[None]) -> None:
    print("Good morning", flush=True)


def create_app() -> Flask:
    app = Flask(__name__)
    app.config["SENDER"] = "shop@example.org"
    app.config["MONQUE_OPTIONS"] = {"collection": "flask_shop"}  # the jobs of other examples are elsewhere
    monque.init_app(app)  # MONQUE_URI, and without it an embedded MongoDB
    monque.init_dashboard(app, "/monque")  # for this machine only, with the key

    @app.post("/orders")
    def create_order() -> tuple[dict[str, str], int]:
        job = process_order.enqueue(Order(request.form["item"], request.form["email"]))
        return {"order": str(job.id)}, 202

    @app.get("/orders")
    def list_orders() -> list[dict[str, str | None]]:
        jobs = monque.monque.list_jobs(JobFilter(name="process-order"))
        return [{"item": job.data["item"], "status": job.result or "new"} for job in jobs]

    return app


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="flask_shop")
    parser.add_argument("--port", type=int, default=8000)
    command = [sys.executable, "-m", "flask", "--app", Path(__file__).stem, "monque", "worker"]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # so that the worker is ended, too
    with subprocess.Popen(command, cwd=Path(__file__).parent) as worker:
        try:
            create_app().run(port=parser.parse_args().port)
        finally:
            worker.terminate()
