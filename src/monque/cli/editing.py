"""`monque jobs edit`: another payload, time or priority of one job that waits."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import click
from click.core import ParameterSource

from monque import ConfigurationError, JobStateError, PayloadError
from monque._views.text import shown_id
from monque.cli.actions import meant, unknown_id
from monque.cli.lines import payload
from monque.cli.output import as_json, job_fields, print_json
from monque.cli.session import Database, connects, recording
from monque.cli.times import duration, moment, stamp


@click.command("edit")
@click.argument("job_id", metavar="ID")
@click.option("--data", metavar="JSON", type=payload, help="The new payload; - reads it from standard input.")
@click.option("--delay", type=duration, help="How long from now, for example 5m.")
@click.option("--at", type=moment, help="When, with a zone, such as 2030-05-01T09:00+02:00.")
@click.option("--priority", type=click.IntRange(0, 9), help="From 0 (normal) to 9, which comes first.")
@click.option("--note", help="Why; kept in the audit trail.")
@as_json
@connects
def edit(
    job_id: str,
    data: Any,
    delay: timedelta | None,
    at: datetime | None,
    priority: int | None,
    note: str | None,
    as_json: bool,
    database: Database,
) -> None:
    """Change the payload, the time or the priority of a job that waits. A job with steps keeps its payload.

    \b
    Examples:
      monque jobs edit 65f1c0ffee65f1c0ffee0001 --data '{"to": "ada@example.org"}'
      monque jobs edit 65f1c0ffee65f1c0ffee0001 --delay 10m --priority 5
    """
    # A payload of `null` is None, too, so its source decides.
    has_data = click.get_current_context().get_parameter_source("data") is ParameterSource.COMMANDLINE
    if delay is not None and at is not None:
        raise click.UsageError("--delay and --at cannot be given together; give one of them")
    if not has_data and delay is None and at is None and priority is None:
        raise click.UsageError("say what to change: --data, --delay or --at, --priority")
    with database.open(create_indexes=bool(priority)) as monque:
        run_at = at if delay is None else monque.server_time() + delay
        given: dict[str, Any] = {"run_at": run_at, "priority": priority}
        changes = {name: value for name, value in given.items() if value is not None}
        before = monque.get_job(meant(monque, job_id))
        if before is None:
            raise click.ClickException(unknown_id(job_id))
        # The trail says that the payload changed, and never what is in it.
        said = {**changes, **({"payload": "changed"} if has_data else {})}
        try:
            with recording(monque, "edit", before, note=note) as known:
                after = monque.edit_job(before, **changes, **({"data": data} if has_data else {}))
                known["after"] = said
        except (PayloadError, ConfigurationError) as error:
            raise click.UsageError(str(error)) from error
        except JobStateError as error:
            raise click.ClickException(str(error)) from error
    if as_json:
        print_json(job_fields(after))
    else:
        click.echo(f"edited {shown_id(after.id)}, due at {stamp(after.next_run_at)}")
