"""`monque doctor`: what is wrong, and what to do."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import asdict

import click

from monque import ConfigurationError, ConnectionError
from monque.cli.output import STYLES, as_json, clean, print_json
from monque.cli.session import Database, connects, takes_app
from monque.management.findings import Finding, findings


@click.command()
@takes_app
@click.option("--strict", is_flag=True, help="Let warnings count as errors.")
@as_json
@connects
@click.pass_context
def doctor(ctx: click.Context, strict: bool, as_json: bool, database: Database) -> None:
    """Check the server and the jobs, and say what to do.

    It changes nothing. The exit code is 0 if there is no error, and 1 if there is one (with --strict: also
    for a warning). With --json: a line for each check.

    \b
    Examples:
      monque doctor shop.jobs:monque
      monque doctor --uri mongodb://localhost:27017/shop
      monque doctor --strict --json
    """
    findings = list(_examine(database))
    for finding in findings:
        print_json(asdict(finding)) if as_json else _print(finding)
    bad = {"error", "warning"} if strict else {"error"}
    ctx.exit(1 if any(finding.level in bad for finding in findings) else 0)


def _examine(database: Database) -> Iterable[Finding]:
    try:
        with database.open() as monque:
            return list(findings(monque.diagnose()))
    except ConnectionError as error:
        advice = "check the address, the credentials and the network"
        return [Finding("server", "error", str(error), advice)]
    except ConfigurationError as error:
        return [Finding("server", "error", str(error), "use MongoDB 6.0 or newer, and a URI that it accepts")]


def _print(finding: Finding) -> None:
    level = finding.level.ljust(7)
    if sys.stdout.isatty() and "NO_COLOR" not in os.environ:
        level = click.style(level, fg=STYLES[finding.level])
    click.echo(f"{level}  {finding.check + ':':<22} {clean(finding.message)}")
    if finding.advice is not None:
        click.echo(f"{'':7}  {'':22} -> {finding.advice}")
