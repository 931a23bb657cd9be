"""`flask monque`: the commands of `monque`, for the Monque of the application."""

from __future__ import annotations

import os

import click
from flask import Flask, current_app, has_app_context
from flask.cli import ScriptInfo

from monque.cli.hosted import group


def monque_commands() -> click.Group:
    """The group for an application."""
    return group(_use, "The jobs of this application: run, see and manage them.")


@click.pass_context
def _use(ctx: click.Context) -> None:
    """Say where the app is. Processes that a command starts have to find it as `flask` has found it."""
    found = ctx.find_object(ScriptInfo)
    if found is not None and found.app_import_path is not None:
        os.environ["FLASK_APP"] = found.app_import_path
    if found is not None and not has_app_context():  # the runner of a test, or a script of the application
        ctx.with_resource(found.load_app().app_context())
    os.environ["MONQUE_APP"] = f"{__name__}:app"


def app() -> Flask:
    """The current application; in a process that a command has started, the one of FLASK_APP."""
    if has_app_context():
        here: Flask = current_app._get_current_object()  # type: ignore[attr-defined]  # a proxy, typed as the app
        return here
    return ScriptInfo(app_import_path=os.environ.get("FLASK_APP")).load_app()
