"""`monque doctor` and `monque indexes`: find what is wrong, and say what to do."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import asdict
from typing import get_args

import click

from monque import ConfigurationError, ConnectionError, Options, UseName, Workers
from monque._views.findings import Finding, findings
from monque.cli.output import STYLES, Columns, as_json, clean, print_all, print_json, waiting
from monque.cli.session import Database, connects, record, takes_app


@click.command()
@takes_app
@click.option("--strict", is_flag=True, help="Let warnings count as errors.")
@click.option(
    "--processes",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="How many processes `monque worker` runs on this machine: with their children they share its cores.",
)
@as_json
@connects
@click.pass_context
def doctor(ctx: click.Context, strict: bool, processes: int, as_json: bool, database: Database) -> None:
    """Check the server and the jobs, and say what to do.

    It changes nothing. The exit code is 0 if there is no error, and 1 if there is one (with --strict: also
    for a warning). With --json: a line for each check.

    \b
    Examples:
      monque doctor shop.jobs:monque
      monque doctor --uri mongodb://localhost:27017/shop
      monque doctor --strict --json
      monque doctor shop.jobs:monque --processes 4
    """
    findings = list(_examine(database, processes))
    for finding in findings:
        print_json(_shown(finding)) if as_json else _print(finding)
    bad = {"error", "warning"} if strict else {"error"}
    ctx.exit(1 if any(finding.level in bad for finding in findings) else 0)


def _examine(database: Database, processes: int) -> Iterable[Finding]:
    try:
        with database.open() as monque:
            return [*findings(monque.diagnose()), children(monque.workers, monque.options, processes)]
    except ConnectionError as error:
        advice = "check the address, the credentials and the network"
        return [Finding("server", "error", str(error), advice)]
    except ConfigurationError as error:
        return [Finding("server", "error", str(error), "use MongoDB 6.0 or newer, and a URI that it accepts")]


def children(workers: Workers, options: Options, processes: int, cores: int | None = None) -> Finding:
    """Judge how many child processes compute at once on this machine."""
    names = [worker.name for worker in workers if worker.settings.get("mode") == "process"]
    if not names:
        return Finding("child processes", "ok", "none: no worker of this app has mode='process'")
    cores = cores or _cores()
    each = options.child_processes or cores
    message = f"{processes} process(es) with {each} child(ren) each on {cores} core(s)"
    if processes * each <= cores:
        return Finding("child processes", "ok", message)
    advice = (
        "they slow each other down: run fewer processes, or give "
        f"--child-processes {max(cores // processes, 1)} to monque worker"
    )
    return Finding("child processes", "warning", message, advice)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _shown(finding: Finding) -> dict[str, str | None]:
    return {
        "check": finding.check,
        "level": finding.level,
        "message": finding.message,
        "advice": finding.remedy,
    }


def _print(finding: Finding) -> None:
    level = finding.level.ljust(7)
    if sys.stdout.isatty() and "NO_COLOR" not in os.environ:
        level = click.style(level, fg=STYLES[finding.level])
    click.echo(f"{level}  {finding.check + ':':<22} {clean(finding.message)}")
    if finding.advice is not None:
        click.echo(f"{'':7}  {'':22} -> {finding.remedy}")


@click.command()
@click.option("--create", is_flag=True, help="Create those that are missing.")
@click.option("--listing", is_flag=True, help="Also those for paging through many jobs in any order.")
@click.option("--retention", is_flag=True, help="Also the one for removing old jobs.")
@click.option(
    "--for",
    "uses",
    multiple=True,
    type=click.Choice(get_args(UseName)),
    help="Also the index for this use, which begins with it; may be repeated.",
)
@as_json
@connects
def indexes(
    create: bool, listing: bool, retention: bool, uses: tuple[UseName, ...], as_json: bool, database: Database
) -> None:
    """Show the indexes, and create those that are missing.

    An index is needed, optional (Monque uses it if it is there), missing, different (its name is taken by
    another) or superfluous (Monque does not use it). With --json: a line for each.

    \b
    Examples:
      monque indexes
      monque indexes --create --retention
      monque indexes --create --for priority
    """
    with (
        waiting("creating the indexes" if create else "looking"),
        database.open(
            create_indexes=create, listing_indexes=listing, retention=retention, uses=uses
        ) as monque,
    ):
        found = monque.diagnose(uses=uses).indexes
        if create:  # this also creates the indexes of the audit trail
            record(monque, "createIndexes")
    columns: Columns = {"name": "name", "state": "state", "keys": lambda index: ", ".join(index.keys)}
    print_all(found, asdict, columns, as_json=as_json)
