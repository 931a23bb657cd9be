"""`monque trends`."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

import click

from monque import Histogram, TrendPoint
from monque.cli.output import as_json, print_json, print_table
from monque.cli.session import Database, connects, takes_app
from monque.cli.times import duration, past, resolve, span, stamp

_ENDINGS = ["completed", "retried", "failed", "cancelled", "snoozed"]
_NUMBERS = [*_ENDINGS, "due", "wait p95", "run p95"]


@click.command()
@takes_app
@click.option("--name", help="Only jobs of this name.")
@click.option("--by-name", is_flag=True, help="A line for each name, instead of one for all names together.")
@click.option("--since", type=past, metavar="TIME|AGE", default="1h", show_default=True, help="From then on.")
@click.option("--until", type=past, metavar="TIME|AGE", help="Until then; by default until now.")
@click.option("--step", type=duration, metavar="DURATION", help="How long a step is, in whole minutes.")
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
    if as_json:
        for point in points:
            print_json(_fields(point))
        return
    columns = ["time", *(["name"] if by_name else []), *_NUMBERS]
    rows = [_row(point, by_name) for point in points if _has_numbers(point)]
    print_table(columns, rows, numbers=_NUMBERS)


def _has_numbers(point: TrendPoint) -> bool:
    return bool(point.due) or any(getattr(point, ending) for ending in _ENDINGS)


def _row(point: TrendPoint, by_name: bool) -> list[object]:
    counts = [getattr(point, ending) or "" for ending in _ENDINGS]
    due = "" if point.due is None else point.due
    names = [point.name] if by_name else []
    return [stamp(point.at), *names, *counts, due, _quantile(point.waited), _quantile(point.ran)]


def _quantile(histogram: Histogram) -> str:
    time = histogram.quantile(0.95)
    return "" if time is None else f"≈{span(time)}"


def _fields(point: TrendPoint) -> dict[str, Any]:
    """A point for `--json`: the names of `TrendPoint`; times as text, durations in seconds."""
    shown = {field.name: getattr(point, field.name) for field in fields(point)}
    buckets = {each: {str(bucket): count for bucket, count in shown[each]} for each in ("ran", "waited")}
    return {**shown, **buckets}
