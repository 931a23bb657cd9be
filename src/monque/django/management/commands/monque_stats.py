"""`manage.py monque_stats`."""

from __future__ import annotations

from argparse import ArgumentParser
from json import dumps
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from monque import JobStatus, MonqueError, QueueStats, QueueView, SyncMonque
from monque.django.clients import make_monque
from monque.django.conf import DEFAULT_ALIAS
from monque.django.results import split_name

STATUSES = [status.value for status in JobStatus]


class Command(BaseCommand):
    """Counts jobs."""

    help = "Count the jobs by name and status; a task's job is named after its queue and its function."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the filters and the format of the output."""
        parser.add_argument("--backend", default=DEFAULT_ALIAS, help="An alias of TASKS. Default: default.")
        parser.add_argument(
            "--queue",
            action="append",
            default=[],
            metavar="NAME",
            help="Only tasks of this queue; may be repeated.",
        )
        parser.add_argument("--json", action="store_true", help="Print it as JSON.")

    def handle(self, *, backend: str, queue: list[str], json: bool, **_: Any) -> None:
        """Print them."""
        try:
            views = _views(backend, queue)
        except MonqueError as error:
            raise CommandError(str(error)) from error
        rows = [{"name": view.name, **_counts(view.stats)} for view in views]
        self.stdout.write(dumps(rows) if json else _as_table(views))


def _views(alias: str, queues: list[str]) -> list[QueueView]:
    # Looking changes nothing.
    looking = make_monque(alias, create_indexes=False, recover_stale_jobs=False)
    with SyncMonque(looking) as monque:
        views = monque.queue_views()
    return [view for view in views if not queues or (split_name(view.name) or ("",))[0] in queues]


def _as_table(views: list[QueueView]) -> str:
    if not views:
        return "There are no jobs."
    rows = [["name", *STATUSES], *([view.name, *map(str, _counts(view.stats).values())] for view in views)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    )


def _counts(stats: QueueStats) -> dict[str, int]:
    return {status: getattr(stats, status) for status in STATUSES}
