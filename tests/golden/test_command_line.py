"""What commands print with `--json` is that of the golden file: scripts read it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from click.testing import CliRunner

from monque.cli.commands import monque as command
from monque.embedded import EmbeddedMongo
from support.aliases import Database
from support.each_kind import Stored
from support.golden import as_json, assert_golden
from support.programs.child import uri_of

# In this order: later ones see what earlier ones did. `<name>` is the id of the job of that name.
COMMANDS = """
jobs list
jobs show <flaky>
jobs show <result>
jobs why <waits>
jobs wait <plain> --timeout 1s
stats
schedules list
schedules show cron
schedules next cron
schedules pause cron
schedules resume cron
schedules trigger every --unique-key main
schedules edit every --unique-key main --cron 3h
pause keyed --reason deploying
paused
resume keyed
jobs priority 5 <waits>
jobs reschedule <waits> --at 2090-01-01T00:00Z
jobs cancel <waits>
jobs retry <waits>
jobs run-now <waits>
jobs delete <waits>
jobs cancel --name keyed --yes
enqueue new {"a":1}
schedule @daily nightly
indexes
doctor
instances
trends
audit
"""


async def test_what_commands_print_as_json_has_not_changed(
    stored: Stored, server: EmbeddedMongo, database: Database
) -> None:
    environment = {"MONQUE_URI": uri_of(server, database)}
    printed: dict[str, Any] = {}
    for line in COMMANDS.strip().splitlines():
        words = [_filled(word, stored) for word in line.split()]
        result = await asyncio.to_thread(
            CliRunner().invoke, command, [*words, "--json"], env=environment, prog_name="monque"
        )
        printed[line] = {"exit": result.exit_code, "printed": _without_machine(_read(result.stdout))}
    assert_golden("command-line.json", as_json(printed))


def _filled(word: str, stored: Stored) -> str:
    return str(stored.jobs[word[1:-1]].id) if word.startswith("<") else word


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return [json.loads(line) if line.startswith(("{", "[")) else line for line in text.splitlines()]


def _without_machine(printed: Any) -> Any:
    """Leave out the user, the host, and sentences about the server and its clock."""
    if isinstance(printed, list):
        return [_without_machine(each) for each in printed]
    if isinstance(printed, dict):
        return {**printed, **{key: f"<{key}>" for key in ("actor", "address", "message") if key in printed}}
    return printed
