"""Commands that only read: `monque stats`, `lines`, `trends`, `instances` and `audit`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any

import click

from monque import AuditEntry, Histogram, Instance, JobStatus, QueueStats, TrendPoint
from monque._views.text import shown_id
from monque.cli.output import Columns, as_json, plain_fields, print_all, print_json, print_table
from monque.cli.session import Database, connects, takes_app
from monque.cli.times import duration, past, resolve, span
from monque.sync import SyncMonque

_STATUSES = [status.value for status in JobStatus]


@click.command()
@takes_app
@click.option("--name", help="Only jobs of this name.")
@as_json
@connects
def stats(name: str | None, as_json: bool, database: Database) -> None:
    """Count the jobs by name and status.

    \b
    Examples:
      monque stats shop.jobs:monque
      monque stats
      monque stats --name send-email --json
    """
    with database.open() as monque:
        total = monque.queue_stats(name=name)
        views = [] if name is not None else monque.queue_views()
    if as_json:
        names = [{"name": view.name, **_stats_fields(view.stats)} for view in views]
        print_json({"name": name, **_stats_fields(total), **({} if name is not None else {"names": names})})
        return
    rows = [_stats_row(view.name, view.stats) for view in views] + [_stats_row(name or "all", total)]
    columns = ["name", *_STATUSES, "total", "average run"]
    print_table(columns, rows, numbers=columns[1:])


def _stats_fields(stats: QueueStats) -> dict[str, Any]:
    """Statistics for `--json`; the average in seconds, null without data."""
    average = stats.avg_processing_duration
    return {
        **{status: getattr(stats, status) for status in _STATUSES},
        "other": stats.other,
        "total": stats.total,
        "avg_processing_duration": None if average is None else average.total_seconds(),
    }


def _stats_row(name: str, stats: QueueStats) -> list[object]:
    average = stats.avg_processing_duration
    counts = [getattr(stats, status) for status in _STATUSES]
    return [name, *counts, stats.total, "" if average is None else span(average)]


@click.command()
@click.argument("name")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="The most to list.")
@as_json
@connects
def lines(name: str, limit: int, as_json: bool, database: Database) -> None:
    """Show how many jobs of each key of a limited NAME run and wait.

    The keys with the most waiting jobs come first. With --json: a line for each key.

    \b
    Examples:
      monque lines sync-customer
      monque lines sync-customer --limit 10 --json
    """
    with database.open() as monque:
        found = monque.lines(name, limit=limit)
    columns = {"key": "key", "running": "running", "waiting": "waiting", "oldest": "oldest"}
    print_all(found, plain_fields, columns, as_json=as_json, numbers=["running", "waiting"])


@click.command()
@takes_app
@click.option("--name", help="Only jobs of this name.")
@click.option("--by-name", is_flag=True, help="A line for each name, instead of one for all names together.")
@click.option("--since", type=past, metavar="TIME|AGE", default="1h", show_default=True, help="The start.")
@click.option("--until", type=past, metavar="TIME|AGE", help="The end. Default: now.")
@click.option("--step", type=duration, metavar="DURATION", help="The length of a step, in whole minutes.")
@as_json
@connects
def trends(
    name: str | None,
    by_name: bool,
    since: datetime | timedelta,
    until: datetime | timedelta | None,
    step: timedelta | None,
    as_json: bool,
    database: Database,
) -> None:
    """Show how runs ended over time, and how long they and their waits took.

    Steps in which nothing ended and nothing was due are left out. The 95 % quantiles are estimates. With
    --json: a line for each step, with the counts of each bucket.

    \b
    Examples:
      monque trends
      monque trends --name send-email --since 6h --step 5m
      monque trends --by-name --since 7d --step 1d --json
    """
    with database.open() as monque:
        now = monque.server_time()
        end = None if until is None else resolve(until, now=now)
        begin = resolve(since, now=now)
        points = monque.trends(name=name, since=begin, until=end, step=step, by_name=by_name)
    columns = {"time": "at", **({"name": "name"} if by_name else {}), **_NUMBERS}
    found = points if as_json else filter(_has_numbers, points)
    print_all(found, _point_fields, columns, as_json=as_json, numbers=list(_NUMBERS))


def _if_any(ending: str, point: TrendPoint) -> object:
    return getattr(point, ending) or ""


def _has_numbers(point: TrendPoint) -> bool:
    return bool(point.due) or any(getattr(point, ending) for ending in _ENDINGS)


def _quantile(histogram: Histogram) -> str:
    time = histogram.quantile(0.95)
    return "" if time is None else f"≈{span(time)}"


_ENDINGS = ("completed", "retried", "failed", "cancelled", "snoozed")
_NUMBERS: Columns = {
    **{ending: partial(_if_any, ending) for ending in _ENDINGS},
    "due": "due",
    "wait p95": lambda point: _quantile(point.waited),
    "run p95": lambda point: _quantile(point.ran),
}


def _point_fields(point: TrendPoint) -> dict[str, Any]:
    """A point for `--json`: the names of `TrendPoint`; times as text, durations in seconds."""
    shown = {field.name: getattr(point, field.name) for field in fields(point)}
    buckets = {each: {str(bucket): count for bucket, count in shown[each]} for each in ("ran", "waited")}
    return {**shown, **buckets}


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
    columns: dict[str, str | Callable[[Instance], object]] = {
        "instance": "id",
        "host": _host,
        "release": "release",
        "version": "version",
        "state": lambda each: each.state if each.alive or each.state == "stopped" else "silent",
        "seen": lambda each: None if each.seen_at is None else f"{span(now - each.seen_at)} ago",
        "busy": "busy",
        "slots": "slots",
        "stream": "change_stream",
        "workers": _workers,
    }
    print_all(found, _instance_fields, columns, as_json=as_json, numbers=["busy", "slots"])


def _host(instance: Instance) -> str:
    host = instance.host or ""
    return host if instance.pid is None else f"{host}:{instance.pid}"


def _workers(instance: Instance) -> str:
    return ", ".join(f"{each.name} (off)" if each.off else each.name for each in instance.workers)


def _instance_fields(instance: Instance) -> dict[str, Any]:
    from monque._views.instance import InstanceRecord

    return InstanceRecord.printed(instance)


# As many as one read takes.
_PAGE = 1000


@click.command()
@click.option("--job", metavar="ID", help="Only actions on this job.")
@click.option("--actor", help="Only actions of this actor.")
@click.option("--action", multiple=True, help="Only this action, for example cancel; may be repeated.")
@click.option("--since", type=past, metavar="TIME|AGE", help="Only actions since then.")
@click.option("--until", type=past, metavar="TIME|AGE", help="Only actions before then.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="The most to list.")
@as_json
@connects
def audit(
    job: str | None,
    actor: str | None,
    action: tuple[str, ...],
    since: datetime | timedelta | None,
    until: datetime | timedelta | None,
    limit: int,
    as_json: bool,
    database: Database,
) -> None:
    """Show what operators did, the newest first.

    They are those of this command line and of the management API, also what was refused or failed. Entries
    are kept for 90 days. With --json: a line for each.

    \b
    Examples:
      monque audit --limit 10
      monque audit --job 65f1c0ffee65f1c0ffee0001
      monque audit --actor ada --action cancel --json
      monque audit --action delete --action deleteBulk --since 2d --until 1d
    """
    with database.open() as monque:
        now = monque.server_time()
        which = {
            "job": job,
            "actor": actor,
            "action": action or None,
            "since": None if since is None else resolve(since, now=now),
            "until": None if until is None else resolve(until, now=now),
        }
        found = list(islice(_entries(monque, min(limit, _PAGE), **which), limit))
    print_all(found, _entry_fields, _ENTRY_COLUMNS, as_json=as_json)


def _entries(monque: SyncMonque, page: int, **which: Any) -> Iterator[AuditEntry]:
    cursor = None
    while True:
        found = monque.audit(cursor=cursor, limit=page, **which)
        yield from found.entries
        if (cursor := found.cursor) is None:
            return


def _entry_fields(entry: AuditEntry) -> dict[str, Any]:
    from monque._views.audit import AuditView

    return AuditView.printed(entry)


def _about(entry: AuditEntry) -> str:
    """Return the jobs that it was about, in a few words."""
    words = [] if entry.job_id is None else [str(shown_id(entry.job_id))]
    words += [] if entry.name is None else [entry.name]
    words += [f"{name}={value}" for name, value in (entry.filter or {}).items()]
    words += [] if entry.count is None else [f"({entry.count:,} jobs)"]
    return " ".join(words)


_ENTRY_COLUMNS: Columns = {
    **{name: name for name in ("at", "actor", "via", "action", "outcome")},
    "about": _about,
    "note": "note",
}
