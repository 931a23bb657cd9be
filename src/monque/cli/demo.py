"""`monque demo`."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import click

from monque.cli.web import require_server


@click.command()
@click.option("--web", is_flag=True, help="Open a shop that never sleeps, and show it with the dashboard.")
@click.option("--seed", type=int, help="With --web: decides what is ordered and what fails.")
@click.option("--quiet-hours", is_flag=True, help="With --web: a fifth of the traffic, no bursts, no deaths.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="With --web: where to serve. Default: 8787, or any free one if that is taken.",
)
@click.pass_context
def demo(ctx: click.Context, web: bool, seed: int | None, quiet_hours: bool, port: int | None) -> None:
    """See it work: a live show on an embedded MongoDB.

    It takes some seconds, uses nothing of yours and leaves nothing behind. With --web there are three worker
    instances, orders all the time and the dashboard, until Ctrl-C.

    \b
    Examples:
      monque demo
      monque demo --web
    """
    if not web and (seed is not None or quiet_hours or port is not None):
        raise click.UsageError("--seed, --quiet-hours and --port belong to --web")
    if not web:
        from monque.demo import main

        ctx.exit(main())
    require_server("monque demo --web")
    home = "monque.examples"
    if find_spec(home) is None:  # a checkout has it beside the package
        home = "examples"
        sys.path.insert(0, str(Path(__file__).parents[3]))
    shop = import_module(f"{home}.shop.opening")
    given = {} if seed is None else {"seed": seed}
    ctx.exit(shop.run(shop.Shop(quiet=quiet_hours, port=port, **given)))
