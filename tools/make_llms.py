"""Write `llms.txt` and `llms-full.txt` into the built pages: `make docs` calls it behind zensical.

The first lists the pages, each with the sentence it begins with; the second has all of them in one text, in
the order of the navigation. Where a page of the reference names an object, its signature and docstring stand
in that place.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]  # it has no annotations

ROOT = Path(__file__).resolve().parents[1]

_OBJECT = re.compile(r"^::: ([\w.]+)\n(?:    .*\n|\n(?=    ))*", re.MULTILINE)
# What leads a reader from page to page, and is in the way of who reads all of them.
_NEXT = re.compile(r"\nNext: \[.+\]\(.+\)\s*\Z")
_BOLD_OR_LINK = re.compile(r"\*\*|\[([^\]]+)\]\([^)]+\)")
_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the navigation."""

    section: str
    title: str
    path: str
    text: str

    @property
    def address(self) -> str:
        """The built page, from the root of all."""
        return self.path.removesuffix("index.md").replace(".md", "/")

    @property
    def about(self) -> str:
        """The first sentence; of the reference, what it names."""
        named = _OBJECT.findall(self.text)
        if named and self.path.startswith("reference/"):
            return ", ".join(f"`{name}`" for name in named[:6]) + (" …" if len(named) > 6 else "")
        blocks = _CODE.sub("", self.text).split("\n\n")[1:]
        prose = (each.strip() for each in blocks if each.strip() and each.strip()[0] not in "#|:*-<!")
        first = _BOLD_OR_LINK.sub(lambda found: found[1] or "", " ".join(next(prose, "").split()))
        return re.split(r"(?<=[.?!]) |:$", first, maxsplit=1)[0]


def pages(root: Path = ROOT) -> list[Page]:
    """All pages, in the order of the navigation."""
    return list(_walk(root / "docs", _configuration(root)["nav"], ""))


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # as above
    """Reads what zensical reads; a value with a tag of its own is None here."""


_Loader.add_multi_constructor("!", lambda *_: None)


def _configuration(root: Path) -> Any:
    return yaml.load((root / "mkdocs.yml").read_text(), _Loader)  # noqa: S506 - it makes plain values alone


def _walk(docs: Path, entries: list[dict[str, Any]], section: str) -> Iterator[Page]:
    for entry in entries:
        [(title, value)] = entry.items()
        if isinstance(value, str):
            yield Page(section, title, value, (docs / value).read_text())
        else:
            yield from _walk(docs, value, title)


def short(pages: list[Page], name: str, description: str, site_url: str = "") -> str:
    """The text of `llms.txt`; without the address of the site, its links are relative."""
    lines = [f"# {name}", "", f"> {description}", ""]
    lines += [f"All pages in one text: [llms-full.txt]({site_url}llms-full.txt)", ""]
    section = None
    for page in pages:
        if page.section != section:
            section = page.section
            lines += ["", f"## {section}", ""] if section else []
        lines.append(f"- [{page.title}]({site_url}{page.address or './'}): {page.about}")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


def full(pages: list[Page], name: str, description: str) -> str:
    """The text of `llms-full.txt`."""
    texts = [_NEXT.sub("\n", page.text).strip() for page in pages]
    texts = [_OBJECT.sub(lambda found: described(found[1]), text + "\n").strip() for text in texts]
    marked = [f"<!-- {page.path} -->\n\n{text}" for page, text in zip(pages, texts, strict=True)]
    return "\n\n".join([f"# {name}\n\n> {description}", *marked]) + "\n"


def described(name: str) -> str:
    """The signature and the docstring of a public name."""
    found = _resolved(name)
    try:
        signature = str(inspect.signature(found)) if callable(found) else ""
    except ValueError:
        signature = ""
    text = inspect.getdoc(found) if inspect.isroutine(found) or inspect.isclass(found) else None
    return f"### `{name}{signature}`\n\n{text or ''}".rstrip() + "\n\n"


def _resolved(name: str) -> Any:
    parts = name.split(".")
    while not _is_module(".".join(parts)):
        parts.pop()
    found: Any = importlib.import_module(".".join(parts))  # says which package it lacks
    for part in name.split(".")[len(parts) :]:
        found = getattr(found, part)
    return found


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # what stands before the last dot is no package
        return False


def main(site: Path) -> None:
    """Write both files into the built pages."""
    configuration, found = _configuration(ROOT), pages()
    about = (configuration["site_name"], configuration["site_description"])
    (site / "llms.txt").write_text(short(found, *about, os.environ.get("MONQUE_SITE_URL", "")))
    (site / "llms-full.txt").write_text(full(found, *about))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
