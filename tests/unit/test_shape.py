"""The shape of the code: small functions, small classes, and field names of documents in one place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

import monque

PACKAGE = Path(monque.__file__).parent
MOST_ATTRIBUTES = 15
MOST_METHODS = 25
LONGEST_FUNCTION = 45

# What users hold has as many methods as it offers, each of a line or two; public values, and a document as it
# is stored, have as many fields as there is to say.
HELD_BY_USERS = {"Monque", "Management", "SyncMonque"}
VALUES = {
    *("Job", "Options", "Claim", "Schedule", "Diagnosis", "AuditEntry", "Instance", "TrendPoint"),
    *("JobFilter", "Route"),
}
MAY_NAME_FIELDS = ("_store/", "management/", "web/", "shop/past.py")

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Found(NamedTuple):
    """A class or a function, and where it stands."""

    file: str
    node: ast.ClassDef | Function

    def __str__(self) -> str:
        return f"{self.file}: {self.node.name}"


def modules(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    for folder in folders or (".",):
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            yield str(path.relative_to(PACKAGE)), ast.parse(path.read_text())


def classes() -> list[Found]:
    return [
        Found(file, node)
        for file, module in modules()
        for node in ast.walk(module)
        if isinstance(node, ast.ClassDef)
    ]


def functions(*folders: str) -> list[Found]:
    return [
        Found(file, node)
        for file, module in modules(*folders)
        for node in ast.walk(module)
        if isinstance(node, Function) and not is_overload(node)
    ]


def is_overload(function: Function) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "overload" for each in function.decorator_list)


def methods(found: Found) -> list[Function]:
    return [node for node in found.node.body if isinstance(node, Function) and not is_overload(node)]


def attributes(found: Found) -> set[str]:
    fields = {node.target.id for node in found.node.body if isinstance(node, ast.AnnAssign)}  # type: ignore[union-attr]
    stored = {
        node.attr
        for method in methods(found)
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if isinstance(node.value, ast.Name) and node.value.id == "self"
    }
    return fields | stored


def lines(found: Found) -> int:
    """The lines of a function, without its docstring."""
    node = found.node
    docstring = 0
    if ast.get_docstring(node, clean=False) is not None:
        first = node.body[0]
        docstring = (first.end_lineno or 0) - first.lineno + 1
    return (node.end_lineno or 0) - node.lineno + 1 - docstring


def is_value(found: Found) -> bool:
    """What the management API answers, too, has as many fields as there is to say."""
    return found.node.name in VALUES or found.node.name.startswith("Ops")


def test_no_class_has_too_many_attributes() -> None:
    large = {str(each): len(attributes(each)) for each in classes() if not is_value(each)}

    assert {name: count for name, count in large.items() if count > MOST_ATTRIBUTES} == {}


def test_no_class_has_too_many_methods() -> None:
    large = {str(each): len(methods(each)) for each in classes() if each.node.name not in HELD_BY_USERS}

    assert {name: count for name, count in large.items() if count > MOST_METHODS} == {}


def test_functions_are_short() -> None:
    sizes = {str(each): lines(each) for each in functions()}
    assert {name: size for name, size in sizes.items() if size > LONGEST_FUNCTION} == {}

    assert median(lines(each) for each in functions("_engine", "_store")) <= 6


def test_field_names_of_documents_stand_in_the_store_alone() -> None:
    """MongoDB's own camelCase, such as the answers of `hello`, is no field of ours.

    The names in the JSON of the management API are a contract of their own, whatever documents are like. The
    shop's day before was never run: its documents are made up, in one file.
    """
    ours = set(re.findall(r'"([a-z]+[A-Z]\w*)"', (PACKAGE / "_store" / "document.py").read_text()))
    assert {"nextRunAt", "claimedBy", "repeatInterval"} <= ours

    found = {
        f"{file}: {node.value}"
        for file, module in modules()
        for node in ast.walk(module)
        if isinstance(node, ast.Constant) and node.value in ours and not file.startswith(MAY_NAME_FIELDS)
    }
    assert found == set()
