"""`monque demo`."""

from __future__ import annotations

import click


@click.command()
@click.pass_context
def demo(ctx: click.Context) -> None:
    """See it work: a live show on an embedded MongoDB.

    It takes some seconds, uses nothing of yours and leaves nothing behind.

    \b
    Example:
      monque demo
    """
    from monque.demo import main

    ctx.exit(main())
