"""`monque dev`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from monque.cli.listen import Ports
from monque.cli.supervise import supervise
from monque.cli.web import require_server
from monque.cli.work import Settings
from monque.cli.worker import listens, runs_target


@click.command()
@runs_target
@listens
@click.option("--web", is_flag=True, help="Serve the dashboard, too, in a process of its own.")
@click.option(
    "--web-port",
    type=click.IntRange(0, 65535),
    help="Where to serve the dashboard. Default: 8787; 0: any free one.",
)
def dev(settings: Settings, host: str, health_port: int | None, web: bool, web_port: int | None) -> None:
    """Run workers on an embedded MongoDB, and again at each change of the source.

    The embedded MongoDB takes the place of the database that the code names; its data is kept between runs.
    Other commands without --uri and MONQUE_URI use the same one.

    \b
    Examples:
      monque dev shop.jobs:monque
      monque dev shop.jobs:monque --web
    """
    if web_port is not None and not web:
        raise click.UsageError("--web-port belongs to --web")
    if web:
        require_server("monque dev --web")
    from monque.embedded import EmbeddedMongo, EmbeddedMongoError

    server = EmbeddedMongo()
    try:
        with server:
            click.echo(f"MongoDB keeps the jobs in {server.data_dir}", err=True)
            click.echo(f"and is reached at {server.uri}", err=True)
            settings = replace(settings, uri=server.uri)
            code = supervise(
                settings,
                count=1,
                folder=Path.cwd(),
                ports=Ports(health=health_port, host=host),
                web=_web_options(web_port) if web else None,
            )
    except EmbeddedMongoError as error:
        raise click.ClickException(str(error)) from error
    click.get_current_context().exit(code)


def _web_options(port: int | None) -> list[str]:
    """What the dashboard of a developer is like: only this machine reaches it, and it may store jobs."""
    return ["--allow-enqueue", "--badge=dev", *([] if port is None else [f"--port={port}"])]
