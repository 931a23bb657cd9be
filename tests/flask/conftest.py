"""Applications of Flask in this process, on the database of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Flask

from monque import Options
from monque.embedded import EmbeddedMongo
from monque.flask import FlaskMonque
from support.aliases import Database
from support.programs.child import uri_of

MakeApp = Callable[..., Flask]


@pytest.fixture
def uri(server: EmbeddedMongo, database: Database) -> str:
    return uri_of(server, database)


@pytest.fixture
def monque() -> FlaskMonque:
    return FlaskMonque()


@pytest.fixture
def make_app(uri: str, monque: FlaskMonque) -> Iterator[MakeApp]:
    """Make applications that have `monque`; failures are final. Everything is closed afterwards."""
    made: list[Flask] = []

    def make(name: str = "shop", **config: Any) -> Flask:
        app = Flask(name)
        app.config["MONQUE_URI"] = uri
        app.config["MONQUE_OPTIONS"] = Options(max_retries=1, trends=None, register=False)
        app.config.update(config)
        monque.init_app(app)
        made.append(app)
        return app

    yield make
    for app in made:
        if "monque_dashboard" in app.extensions:
            app.extensions["monque_dashboard"].close()
        app.extensions["monque"].monque.close()
