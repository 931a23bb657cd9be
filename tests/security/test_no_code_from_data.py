"""Nothing in the package turns data into code: read from the syntax trees of all its files."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import monque

PACKAGE = Path(monque.__file__).parent

BUILTINS = {"eval", "exec", "compile", "__import__"}
MODULES = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "yaml", "jsonpickle"}
FUNCTIONS = {("os", "system"), ("os", "popen"), ("builtins", "eval"), ("builtins", "exec")}
# Imports by a name that is only known at run time: each of these names comes from the program, its settings
# or the operator's command line, never from a job.
IMPORTERS = {
    *("__init__.py", "_ops/ops.py", "_workers/address.py"),
    *("cli/commands.py", "cli/demo.py", "cli/target.py", "fastapi/lifespan.py"),
    *("django/__init__.py", "django/dashboard.py", "django/serving.py"),
    "django/management/commands/monque_worker.py",
}
# Errors of handlers come from our own child processes, through a socket that nobody else has; never from the
# database. `test_the_child_is_not_handed_what_a_job_names` shows that a job cannot change what is imported.
UNPICKLERS = {"_processes/crossing.py"}


def dangers(tree: ast.AST) -> Iterator[str]:
    """What in a module could run data, one line each."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (
                    f"imports {name.name}" for name in names if name.name.partition(".")[0] in MODULES
                )
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] in MODULES:
                yield f"imports from {module}"
            case ast.Name(id=name) if name in BUILTINS:
                yield f"uses {name}"
            case ast.Attribute(value=ast.Name(id=module), attr=name) if (module, name) in FUNCTIONS:
                yield f"uses {module}.{name}"
            case ast.keyword(arg="shell", value=value) if not _is_false(value):
                yield "starts a shell"


def _is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is False


def imports_by_name(tree: ast.AST) -> bool:
    return any(
        (isinstance(node, ast.Attribute) and node.attr == "import_module")
        or (isinstance(node, ast.ImportFrom) and any(name.name == "import_module" for name in node.names))
        for node in ast.walk(tree)
    )


@cache
def trees() -> dict[str, ast.Module]:
    paths = sorted(PACKAGE.rglob("*.py"))
    return {path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text()) for path in paths}


def test_no_file_evaluates_unpickles_or_starts_a_shell() -> None:
    found = {name: list(dangers(tree)) for name, tree in trees().items()}

    assert {name: lines for name, lines in found.items() if lines} == {
        name: ["imports pickle"] for name in UNPICKLERS
    }
    assert len(found) > 50


def test_only_the_known_files_import_by_name() -> None:
    assert {name for name, tree in trees().items() if imports_by_name(tree)} == IMPORTERS


@pytest.mark.parametrize(
    "source",
    [
        "eval(data)",
        "builtins.exec(data)",
        "import pickle",
        "import pickle as p",
        "from pickle import loads",
        "import yaml.loader",
        "from marshal import loads as l",
        "run = eval",
        "__import__(name)",
        "os.system(name)",
        "subprocess.run(name, shell=True)",
        "def f():\n    return compile(data, '', 'exec')",
    ],
)
def test_each_of_these_would_be_found(source: str) -> None:
    assert list(dangers(ast.parse(source)))
