"""Apps of Litestar and Flask that have a Monque, and one of each that has none."""

from flask import Flask
from litestar import Litestar

from monque import Job, Monque
from monque.flask import FlaskMonque
from monque.litestar import MonquePlugin

extension = FlaskMonque()


@extension.job("flask-work")
def work(job: Job[None]) -> None: ...


def create_flask() -> Flask:
    app = Flask("shop")
    app.config["MONQUE_URI"] = "mongodb://localhost:1/shop"
    extension.init_app(app)
    return app


star = Litestar([], plugins=[MonquePlugin(Monque("mongodb://localhost:1/shop"))])
bare_flask = Flask("bare")
bare_star = Litestar([])
