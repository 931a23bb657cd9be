"""Public names and signatures are those of the golden file."""

from __future__ import annotations

import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from types import ModuleType

from support.golden import assert_golden

MODULES = (
    "monque",
    "monque.django",
    "monque.embedded",
    "monque.fastapi",
    "monque.flask",
    "monque.litestar",
    "monque.prometheus",
    "monque.sentry",
    "monque.testing",
    "monque.web",
)


def test_public_names_and_signatures_have_not_changed() -> None:
    assert_golden("public-names.txt", "\n".join(_lines()))


def _lines() -> Iterator[str]:
    for name in MODULES:
        module = importlib.import_module(name)
        yield f"# {name}"
        for public in sorted(_public(module)):
            yield from _described(public, getattr(module, public))
        yield ""


def _public(module: ModuleType) -> list[str]:
    if (names := getattr(module, "__all__", None)) is not None:
        return list(names)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


def _described(name: str, value: object) -> Iterator[str]:
    if not inspect.isclass(value):
        yield f"{name}{_signature(value)}" if callable(value) else name
        return
    bases = ", ".join(
        base.__name__ for base in value.__bases__ if base is not object and not base.__name__.startswith("_")
    )
    yield f"class {name}({bases})"
    if issubclass(value, enum.Enum):
        yield "    " + " ".join(member.name for member in value)
        return
    yield f"    __init__{_signature(value)}"
    for member, raw in sorted(_members(value).items()):
        if isinstance(raw, property) or not callable(getattr(value, member)):
            yield f"    {member}"
        else:
            is_async = "async " if inspect.iscoroutinefunction(getattr(value, member)) else ""
            yield f"    {is_async}{member}{_signature(getattr(value, member))}"


def _members(cls: type) -> dict[str, object]:
    """The public members that classes of ours define, also through bases."""
    found: dict[str, object] = {}
    for each in reversed(cls.__mro__):
        if each.__module__.partition(".")[0] == "monque":
            found |= {name: value for name, value in vars(each).items() if not name.startswith("_")}
    return found


def _signature(value: object) -> str:
    try:
        signature = str(inspect.signature(value))
    except (TypeError, ValueError):
        return "(...)"
    # Where a module lies is nobody's business, nor is the address of a default value.
    return re.sub(r" at 0x[0-9a-f]+", "", re.sub(r"\bmonque(\.\w+)*\._?\w+\.(?=[A-Z])", "", signature))
