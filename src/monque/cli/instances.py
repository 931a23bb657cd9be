"""`monque instances`."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import Any

import click

from monque import Instance, InstanceWorker
from monque.cli.output import as_json, plain, print_json, print_table
from monque.cli.session import Database, connects, takes_app
from monque.cli.times import span

_COLUMNS = ["instance", "host", "release", "version", "state", "seen", "busy", "slots", "stream", "workers"]


@click.command()
@takes_app
@as_json
@connects
def instances(as_json: bool, database: Database) -> None:
    """List the instances that process jobs, or did so within the last 24 hours.

    One that has not been heard of for too long is shown as silent. With --json: a line for each.

    \b
    Examples:
      monque instances
      monque instances shop.jobs:monque --json
    """
    with database.open() as monque:
        found, now = monque.instances(), monque.server_time()
    if as_json:
        for each in found:
            print_json(_fields(each))
        return
    print_table(_COLUMNS, [_row(each, now) for each in found], numbers=["busy", "slots"])


def _row(instance: Instance, now: datetime) -> list[object]:
    state = instance.state if instance.alive or instance.state == "stopped" else "silent"
    seen = "" if instance.seen_at is None else f"{span(now - instance.seen_at)} ago"
    host = instance.host or ""
    return [
        instance.id,
        host if instance.pid is None else f"{host}:{instance.pid}",
        instance.release or "",
        instance.version or "",
        state,
        seen,
        instance.busy,
        instance.slots,
        instance.change_stream,
        ", ".join(f"{each.name} (off)" if each.off else each.name for each in instance.workers),
    ]


def _fields(instance: Instance) -> dict[str, Any]:
    """An instance for `--json`: the names of `Instance`; times as text, durations in seconds."""
    shown = {field.name: getattr(instance, field.name) for field in fields(instance)}
    settings = {name: plain(value) for name, value in instance.settings.items()}
    return {**shown, "workers": [_worker_fields(each) for each in instance.workers], "settings": settings}


def _worker_fields(worker: InstanceWorker) -> dict[str, Any]:
    return {field.name: getattr(worker, field.name) for field in fields(worker)}
