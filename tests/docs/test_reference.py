"""What the pages list is what there is: options, events, errors, indexes."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import monque
from monque import Event, Options, Retention, Trends
from monque._store.document import TRACE_FIELDS, stored_policy
from monque._values.settings import Policy

DOCS = Path(__file__).parents[2] / "docs"
# A policy that says everything.
EVERYTHING = Policy(**{field.name: 1 for field in fields(Policy)})
UNITS = {"s": "seconds", "min": "minutes", "h": "hours", "d": "days"}


def table(page: str, heading: str) -> dict[str, str]:
    """The first table below a heading: first column to second, without their backquotes."""
    section = (DOCS / page).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip().strip("`") for cell in line.split("|")[1:-1]] for line in section.splitlines()]
    return {
        row[0]: row[1] for row in rows if len(row) > 1 and row[0] not in ("Option", "Field", "kind", "---")
    }


def shown(default: Any) -> Any:
    """A default as the table writes it: durations in words, all else as in Python."""
    if isinstance(default, timedelta):
        return default
    return "Trends()" if default == Trends() else repr(default)


def read(text: str) -> Any:
    found = re.fullmatch(r"(\d+) (s|min|h|d)", text)
    return timedelta(**{UNITS[found[2]]: int(found[1])}) if found else text.replace('"', "'")


@pytest.mark.parametrize(
    ("heading", "values"), [("Options", Options), ("Retention", Retention), ("Trends", Trends)]
)
def test_the_configuration_page_lists_every_option_with_its_default(heading: str, values: type) -> None:
    listed = table("getting-started/configuration.md", heading)

    assert {name: read(default) for name, default in listed.items()} == {
        field.name: shown(field.default) for field in fields(values) if field.default is not MISSING
    }


def test_the_quickstart_lists_events_with_their_classes() -> None:
    listed = table("getting-started/quickstart.md", "Hearing what happens")

    assert listed
    assert {kind: getattr(monque, name).kind for kind, name in listed.items()} == {
        kind: kind for kind in listed
    }
    operators = {"job:retried", "job:deleted", "jobs:cancelled", "jobs:retried", "jobs:deleted"}
    assert set(listed) == {event.kind for event in Event.__subclasses__()} - operators


def test_the_pages_on_errors_name_every_error_and_no_other() -> None:
    public = {
        name
        for name in monque.__all__
        if isinstance(found := getattr(monque, name), type) and issubclass(found, monque.MonqueError)
    }
    guide = (DOCS / "guides/retries.md").read_text().partition("## Errors of the library")[2]
    tree = (DOCS / "reference/errors.md").read_text().partition("```text\n")[2].partition("```")[0]

    assert set(re.findall(r"`(\w+Error)`", guide)) - {"ValueError", "LookupError", "PyMongoError"} == public
    assert set(re.findall(r"^\W*(\w+Error)", tree, re.MULTILINE)) == public


async def test_the_page_on_indexes_lists_those_that_are_created(make_monque: Any, collection: Any) -> None:
    always = (DOCS / "concepts/indexes.md").read_text().partition("## Uses")[0]
    rows = re.findall(r"^\| `(\w+)` \| `([\w, ]+)`", always, re.MULTILINE)
    await make_monque(options=Options(retention=Retention(completed=timedelta(days=1)))).open()

    created = await collection.index_information()
    assert {name: keys.split(", ") for name, keys in rows} == {
        name: [key for key, _ in index["key"]] for name, index in created.items() if name != "_id_"
    }


def test_the_tour_names_files_that_exist() -> None:
    package = Path(monque.__file__).parent
    named = re.findall(r"`((?:_\w+/(?:\w+/)*)?_?\w+)(?:\.py)?`", (DOCS / "internals/tour.md").read_text())
    files = [name for name in named if name.startswith("_")] + re.findall(
        r"`(\w+\.py)`", (DOCS / "internals/tour.md").read_text()
    )

    assert len(files) > 15
    assert [name for name in files if not list(package.glob(name.removesuffix(".py") + "*"))] == []


def test_the_tour_lists_every_module_or_its_folder() -> None:
    package = Path(monque.__file__).parent
    listed = (DOCS / "internals/tour.md").read_text().partition("## All modules")[2].partition("\n## ")[0]
    modules = [path.relative_to(package) for path in package.rglob("*.py") if path.name != "__init__.py"]

    missing = [path for path in modules if f"`{path}`" not in listed and f"`{path.parts[0]}/`" not in listed]
    assert missing == []


def test_handlers_in_the_pages_say_what_their_jobs_carry() -> None:
    """A bare `Job` or `dict` is an error in a program that mypy checks strictly."""
    pages = [*DOCS.rglob("*.md"), DOCS.parent / "README.md"]
    bare = re.compile(r"\w+: Job(?:\[(?:dict|list|set|tuple)\])?(?=[,)])")

    assert {str(page): found for page in pages if (found := bare.findall(page.read_text()))} == {}


def test_the_docstring_of_the_options_has_a_line_for_each() -> None:
    for values in (Options, Retention):
        described = re.findall(r"^        (\w+): ", values.__doc__ or "", re.MULTILINE)
        assert described == [field.name for field in fields(values)]


def test_the_page_on_typescript_names_every_field_that_is_stored() -> None:
    store = Path(monque.__file__).parent / "_store"
    files = ("document", "flows", "unique", "progress", "schedules")
    paths = [*(store / f"{name}.py" for name in files), *(store / "transitions").glob("*.py")]
    code = "".join(path.read_text() for path in paths)
    answers = {"writeErrors", "writeConcernErrors"}  # of the server
    stored = set(re.findall(r"\"([a-z]+[A-Z][A-Za-z]*)\"", code)) - answers | {
        "attempt",
        "timezone",
        *TRACE_FIELDS,
    }
    stored |= {"policy", *stored_policy(EVERYTHING), "history", "by", "outcome", "error", "message", "trace"}
    stored |= {"cancel", "at", "reason", "stuck", "why", "since"}
    stored |= {"again", "count", "priority", "ms"}
    stored |= {"result", "progress", "done", "total", "log", "level", "text"}
    stored |= {"schedule", "every", "anchor", "grace", "overlap"}
    stored |= {"steps", "signals", "parked", "n", "k", "v", "until", "over", "id", "key", "redo"}
    stored |= {"batch", "order", "parent", "step", "jobs", "turn", "line", "slot"}
    page = (DOCS / "guides/typescript.md").read_text().partition("## Every field")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]+) \|", page, re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}

    assert stored <= listed
    assert listed - stored <= {"_id", "name", "data", "status"}


def test_the_walks_through_the_code_name_files_that_exist() -> None:
    root, package = DOCS.parent, Path(monque.__file__).parent
    page = (DOCS / "internals/extending.md").read_text()
    named = re.findall(r"`((?:\w+/)*\w+\.(?:py|md))`", page)

    assert len(named) > 25
    assert [name for name in named if not (root / name).exists() and not (package / name).exists()] == []


def test_every_example_is_listed() -> None:
    examples = DOCS.parent / "examples"
    there = {path.name for path in examples.iterdir() if path.suffix == ".py" or path.is_dir()}
    there -= {"__pycache__"}
    page = (DOCS / "guides/examples.md").read_text()

    assert set(re.findall(r"^\| `examples/([\w.]+)` \|", page, re.MULTILINE)) == there
    assert set(re.findall(r"^\$ .venv/bin/python (?:-m )?examples[/.](\S+)$", page, re.MULTILINE)) == there
    assert set(re.findall(r"^\| \[`([\w.]+)`\]", (examples / "README.md").read_text(), re.MULTILINE)) == there
