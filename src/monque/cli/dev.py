"""`monque dev`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from monque.cli.supervise import supervise
from monque.cli.work import Settings
from monque.cli.worker import PORT, runs_target


@click.command()
@runs_target
@click.option("--health-port", type=PORT, help="Answer /healthz and /readyz on this port.")
def dev(settings: Settings, health_port: int | None) -> None:
    """Run workers on an embedded MongoDB, and again at each change of the source.

    The embedded MongoDB takes the place of the database that the code names; its data is kept between runs.
    Other commands without --uri and MONQUE_URI use the same one.

    \b
    Example:
      monque dev shop.jobs:monque
    """
    from monque.embedded import EmbeddedMongo, EmbeddedMongoError

    server = EmbeddedMongo()
    try:
        with server:
            click.echo(f"MongoDB keeps the jobs in {server.data_dir}", err=True)
            click.echo(f"and is reached at {server.uri}", err=True)
            settings = replace(settings, uri=server.uri)
            code = supervise(settings, count=1, folder=Path.cwd(), health_port=health_port)
    except EmbeddedMongoError as error:
        raise click.ClickException(str(error)) from error
    click.get_current_context().exit(code)
