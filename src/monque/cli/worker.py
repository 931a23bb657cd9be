"""`monque worker` and `monque dev`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from monque.cli.listen import Ports
from monque.cli.log import FORMATS, LEVELS, set_up_logging
from monque.cli.metrics import require_prometheus
from monque.cli.session import chosen_app, names_app, sentences, takes_app
from monque.cli.target import LoadError
from monque.cli.work import Place, Settings, run_worker

F = TypeVar("F", bound=Callable[..., Any])


def listens(command: F) -> F:
    """A command that answers probes."""
    host = click.option(
        "--host",
        default=Ports().host,
        show_default=True,
        help="The address of these ports; 0.0.0.0 (or ::) lets other machines in, as Kubernetes needs it.",
    )
    port = click.option(
        "--health-port", type=click.IntRange(1, 65535), help="Answer /healthz and /readyz on this port."
    )
    return port(host(command))


def runs_target(command: F) -> F:
    """A command that takes `Settings`; what `worker` and `dev` have in common."""

    @takes_app
    @names_app
    @click.option(
        "--concurrency",
        type=click.IntRange(min=1),
        help="How many jobs of one worker run at once, unless the worker says otherwise.",
    )
    @click.option(
        "--instance-concurrency", type=click.IntRange(min=1), help="How many jobs run at once in a process."
    )
    @click.option(
        "--child-processes",
        type=click.IntRange(min=1, max=1_000),
        help="How many children of each process run handlers with mode='process'. Default: as many as cores.",
    )
    @click.option("--only", multiple=True, metavar="NAME", help="Run only this worker; may be repeated.")
    @click.option(
        "--except", "excluding", multiple=True, metavar="NAME", help="Leave out this worker; may be repeated."
    )
    @click.option(
        "--loop",
        type=click.Choice(("asyncio", "uvloop")),
        default="asyncio",
        show_default=True,
        help="The event loop; uvloop takes a little less CPU and comes with pymonque[speed].",
    )
    @click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True)
    @click.option("--log-format", type=click.Choice(FORMATS), default="text", show_default=True)
    @functools.wraps(command)
    def running(target: str | None, app: str | None, **given: Any) -> Any:
        given["target"] = chosen_app(target, app)
        if given["target"] is None:
            raise click.UsageError("say what to run, for example shop.jobs:monque, or set MONQUE_APP")
        settings = Settings.taken_from(given)
        set_up_logging(settings.log_level, settings.log_format)
        with sentences():
            return command(settings=settings, **given)

    return running  # type: ignore[return-value]  # click calls it by keywords


@click.command()
@runs_target
@click.option("--uri", metavar="URI", help="Use this database instead of the one that the code names.")
@click.option(
    "--processes", type=click.IntRange(1, 256), default=1, show_default=True, help="How many processes."
)
@click.option("--until-idle", is_flag=True, help="Process everything that is due, then end.")
@click.option("--reload", is_flag=True, help="Start again when a source file changes; for development.")
@listens
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Answer /metrics for Prometheus on this port; 0 for any free one, which the log names.",
)
@click.option("--supervised", type=(int, int), hidden=True)
@click.option("--metrics-folder", hidden=True)
def worker(
    settings: Settings,
    processes: int,
    reload: bool,
    host: str,
    health_port: int | None,
    metrics_port: int | None,
    supervised: tuple[int, int] | None,
) -> None:
    """Run the workers of a Monque, of a web app that has one, or of a factory.

    MODULE is looked for in the current folder first. ATTR is a Monque, a SyncMonque, an app of FastAPI,
    Litestar or Flask that has a Monque, or a function that returns one of these.

    SIGINT and SIGTERM end it gracefully: running jobs are finished. A second signal gives them back at once,
    and a third one ends the process. It ends five seconds after the shutdown timeout at the latest.

    \b
    Examples:
      monque worker shop.jobs:monque
      monque worker shop.web:app --processes 4 --health-port 8081 --metrics-port 9464
      monque worker shop.jobs:make_monque --only send-email --until-idle
    """
    ports = Ports(health=health_port, metrics=metrics_port, host=host)
    if supervised is None:
        code = serve(settings, count=processes, reloads=reload, root=Path.cwd, ports=ports)
        click.get_current_context().exit(code)
    try:
        run_worker(settings, place=Place(*supervised), ports=ports)
    except LoadError as error:
        error.is_tried_again = reload  # by the supervisor
        raise


def serve(settings: Settings, *, count: int, reloads: bool, root: Callable[[], Path], ports: Ports) -> int:
    """Run one process, or several below this one, again at changes below *root* if it reloads."""
    if reloads and settings.until_idle:
        raise click.UsageError("--reload and --until-idle cannot be given together")
    if ports.metrics is not None:
        require_prometheus()
    if count == 1 and not reloads:
        run_worker(settings, place=None, ports=ports)
        return 0
    if sys.platform == "win32":
        raise click.UsageError(
            "--processes and --reload are not available on Windows; run one process, and others beside it"
        )
    from monque.cli.supervise import supervise

    folder = root()
    return supervise(settings, count=count, folder=folder if reloads else None, ports=ports)


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
    from monque.cli.supervise import supervise
    from monque.cli.web import require_server
    from monque.embedded import EmbeddedMongo, EmbeddedMongoError

    if web:
        require_server("monque dev --web")

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
    """Return the options of a developer's dashboard: only this machine reaches it, and it may store jobs."""
    return ["--allow-enqueue", "--badge=dev", *([] if port is None else [f"--port={port}"])]
