"""The guide to the command line: what it shows can be typed, and what it lists is what there is."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from monque.cli.commands import COMMANDS, INTERRUPTED
from monque.cli.commands import monque as command
from monque.cli.supervise import WRONG_INPUT
from monque.cli.worker import worker

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "cli.md").read_text()


def leaves(found: click.Command) -> Iterator[click.Command]:
    """The command itself, and if it is a group all below it."""
    yield found
    if isinstance(found, click.Group):
        context = click.Context(found)
        for name in found.list_commands(context):
            yield from leaves(found.get_command(context, name) or found)


SHOWN = [line for line in re.findall(r"^\$ (monque .*)$", GUIDE, re.MULTILINE) if "--help" not in line]
EXAMPLES = [
    line for each in leaves(command) for line in re.findall(r"^ +(monque .*)$", each.help or "", re.MULTILINE)
]


@pytest.mark.parametrize("line", sorted({*SHOWN, *EXAMPLES}))
def test_what_is_shown_can_be_typed(line: str) -> None:
    """The command exists and takes these arguments; it is not run."""
    words = shlex.split(re.split(r" >>? ", line)[0])[1:]
    found: click.Command | None = command
    while isinstance(found, click.Group):
        found = found.get_command(click.Context(found), words.pop(0))

    assert found is not None
    assert found.make_context(line, words).command is found


def test_there_is_something_to_check() -> None:
    assert len(SHOWN) > 15
    assert {line.split()[1] for line in EXAMPLES} == set(COMMANDS)


def test_every_option_of_the_worker_is_listed() -> None:
    table = GUIDE.partition("| Option |")[2].partition("\n\n")[0]
    listed = set(re.findall(r"`(--[\w-]+) ?\w*`", table))
    there = {name for option in worker.params if not getattr(option, "hidden", True) for name in option.opts}

    assert listed == there - {"--help"}


def test_the_exit_codes_are_those_in_use() -> None:
    table = GUIDE.partition("| Exit code |")[2].partition("\n\n")[0]

    assert re.findall(r"^\| (\d+) \|", table, re.MULTILINE) == ["0", "1", str(WRONG_INPUT), str(INTERRUPTED)]
