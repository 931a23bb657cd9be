"""Write `src/monque/sync/twins.py`: a blocking twin for each public method of `Monque`.

It reads the signatures and overloads from the sources. What `SyncMonque` defines by hand is left out.
"""

from __future__ import annotations

import ast
import builtins
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Literal, get_origin

import monque
from monque import Monque

SYNC = Path(__file__).parents[1] / "src" / "monque" / "sync"
TARGET = SYNC / "twins.py"
_HEAD = '''"""Methods of `SyncMonque`. `make sync` (tools/make_sync.py) writes this file: do not edit it."""
# ruff: noqa: A002 - the names of parameters are those of `Monque`

from __future__ import annotations

{imports}


class _Twins(Blocking):
    """Methods that wait for those of the same name in `Monque`."""

'''
Function = ast.FunctionDef | ast.AsyncFunctionDef


def main() -> None:
    """Write the file; with `--check` only see whether it is up to date."""
    text = written(Monque)
    if "--check" not in sys.argv:
        TARGET.write_text(text)
    elif TARGET.read_text() != text:
        sys.exit(f"{TARGET.name} is not made from today's Monque: run `make sync`")


def written(cls: type) -> str:
    """Return the text of the file for the methods of *cls*."""
    by_hand = {each.name for each in _methods(SYNC / "__init__.py", "SyncMonque")}
    names = Names()
    twins = [
        line
        for name in dir(cls)
        if not name.startswith("_") and name not in by_hand
        for line in _twin(cls, name, names)
    ]
    imports = [f"from {module} import {name}" for name, module in sorted(names.found.items())]
    return _formatted(_HEAD.format(imports="\n".join(imports)) + "\n".join(twins))


def _twin(cls: type, name: str, names: Names) -> Iterator[str]:
    """Yield the source of one method: its overloads, its signature, and the call."""
    for function in _found(cls, name, names):
        decorators = [ast.unparse(each) for each in function.decorator_list]
        if function.returns is None or set(decorators) - {"overload", "property"}:
            sys.exit(f"{name} has no plain signature; write its twin by hand, in SyncMonque")
        yield from (f"    @{each}" for each in decorators)
        yield f"    def {name}({ast.unparse(function.args)}) -> {ast.unparse(function.returns)}:"
        if "overload" in decorators:
            yield "        ..."
        else:
            call = "" if "property" in decorators else f"({_passed(function.args)})"
            yield f'        """As `Monque.{name}`."""'
            yield f"        {_answer(function, f'self._monque.{name}{call}')}"
        yield ""


def _answer(function: Function, call: str) -> str:
    """Return the statement that waits for the call, and returns what it returns."""
    if isinstance(function, ast.FunctionDef):
        return f"return {call}"
    is_iterator = any(isinstance(each, ast.Yield) for each in ast.walk(function))
    return f"yield from self._each({call})" if is_iterator else f"return self._call({call})"


def _found(cls: type, name: str, names: Names) -> list[Function]:
    """Return the definitions of a method, with names that can be imported here."""
    for owner in cls.__mro__:
        module = sys.modules[owner.__module__]
        found = [each for each in _methods(module.__file__, owner.__name__) if each.name == name]
        if found:
            return [names.resolved(each, module) for each in found]
    sys.exit(f"{name} is no method in the source of {cls.__name__}; write its twin by hand, in SyncMonque")


def _passed(args: ast.arguments) -> str:
    """Return the arguments of a call that hands on each parameter but `self`."""
    positional = [each.arg for each in (*args.posonlyargs, *args.args)][1:]
    by_name = [f"{each.arg}={each.arg}" for each in args.kwonlyargs]
    rest = [f"*{args.vararg.arg}"] if args.vararg else []
    options = [f"**{args.kwarg.arg}"] if args.kwarg else []
    return ", ".join([*positional, *rest, *by_name, *options])


class Names(ast.NodeTransformer):
    """The names in signatures, and the modules to import them from.

    `sync` may import only the public names of the core. A private one is defined in `loop_thread`, too, or it
    is a `Literal`, which is written out.
    """

    def __init__(self) -> None:
        self.found = {"Blocking": "monque.sync.loop_thread"}
        self._shared = {
            node.id
            for node in ast.walk(_parsed(SYNC / "loop_thread.py"))
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }

    def resolved(self, function: Function, module: ModuleType) -> Function:
        """Return *function*, once what its signature names is noted, as *module* knows it."""
        self._module, function = module, deepcopy(function)
        function.args = self.visit(function.args)
        function.returns = function.returns and self.visit(function.returns)
        if any(ast.unparse(each) == "overload" for each in function.decorator_list):
            self.found["overload"] = "typing"
        return function

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Note where a name comes from."""
        name = "Iterator" if node.id == "AsyncIterator" else node.id
        value = getattr(self._module, node.id, None)
        if get_origin(value) is Literal and name not in monque.__all__:
            self.found["Literal"] = "typing"
            return ast.parse(repr(value).removeprefix("typing."), mode="eval").body
        if name in self._shared:
            self.found[name] = "monque.sync.loop_thread"
        elif name in monque.__all__:
            self.found[name] = "monque"
        elif name not in vars(builtins):
            self.found[name] = self._imported(node.id)
        return ast.Name(name)

    def _imported(self, name: str) -> str:
        """Return the module, of the standard library or the driver, that a name is imported from."""
        for node in ast.walk(_parsed(self._module.__file__)):
            if isinstance(node, ast.ImportFrom) and name in {each.name for each in node.names}:
                source = node.module or "."
                if not source.startswith(("monque", ".")):
                    return source
        sys.exit(f"{name} in {self._module.__name__} is private: define it in monque.sync.loop_thread, too")


def _methods(file: str | Path | None, name: str) -> list[Function]:
    """Return the functions in the body of a class."""
    return [
        function
        for node in (_parsed(file).body if file else ())
        if isinstance(node, ast.ClassDef) and node.name == name
        for function in node.body
        if isinstance(function, Function)
    ]


@cache
def _parsed(file: str | Path) -> ast.Module:
    return ast.parse(Path(file).read_text())


def _formatted(text: str) -> str:
    for command in (["check", "--fix", "--exit-zero", "--quiet", "--select", "I"], ["format", "--quiet"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(TARGET), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    main()
