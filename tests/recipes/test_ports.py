"""Programs of Celery and BullMQ, ported: each does what the original does, in at most twice its lines."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from monque.embedded import EmbeddedMongo
from support.aliases import Database

PORTS = sorted(Path(__file__).with_name("ports").glob("*.py"))


@pytest.mark.parametrize("path", PORTS, ids=lambda path: path.stem)
async def test_a_port_does_what_the_original_does(
    path: Path, server: EmbeddedMongo, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MONQUE_URI", server.uri.replace("/?", f"/{database.name}?"))
    port: Any = loaded(path, monkeypatch)

    assert await port.main() == port.EXPECTED


@pytest.mark.parametrize("path", PORTS, ids=lambda path: path.stem)
def test_a_port_has_at_most_twice_the_lines_of_the_original(path: Path) -> None:
    original, port = lines_of(path)

    assert 5 < port <= 2 * original


def loaded(path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program, imported anew: it makes its Monque as it is imported."""
    spec = importlib.util.spec_from_file_location(f"recipe_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # where annotations are looked up
    spec.loader.exec_module(module)
    return module


def lines_of(path: Path) -> tuple[int, int]:
    """How many lines the original and the port have, without those that are blank."""
    source = path.read_text()
    docstring, *_, expected, original = ast.parse(source).body
    assert isinstance(original, ast.Assign)
    assert isinstance(original.value, ast.Constant)
    port = source.splitlines()[docstring.end_lineno : expected.lineno - 1]
    return filled(str(original.value.value).splitlines()), filled(port)


def filled(lines: list[str]) -> int:
    return sum(bool(line.strip()) for line in lines)
