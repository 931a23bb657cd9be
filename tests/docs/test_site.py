"""The built pages: no warning, no dead link, every public name in the reference with its docstring."""

from __future__ import annotations

import html
import importlib
import inspect
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import monque
from monque import Monque, SyncMonque

ROOT = Path(__file__).parents[2]
NAMES = [
    *(f"monque.{name}" for name in monque.__all__ if name not in ("__version__", "EmbeddedMongo")),
    *(f"monque.Monque.{name}" for name in dir(Monque) if not name.startswith("_")),
    *(f"monque.SyncMonque.{name}" for name in dir(SyncMonque) if not name.startswith("_")),
    *(f"monque.fastapi.{name}" for name in importlib.import_module("monque.fastapi").__all__),
    *(f"monque.django.{name}" for name in importlib.import_module("monque.django").__all__),
    *(f"monque.litestar.{name}" for name in importlib.import_module("monque.litestar").__all__),
    *(f"monque.flask.{name}" for name in importlib.import_module("monque.flask").__all__),
    *(f"monque.sentry.{name}" for name in importlib.import_module("monque.sentry").__all__),
    *(f"monque.pydantic_ai.{name}" for name in importlib.import_module("monque.pydantic_ai").__all__),
    *(f"monque.web.{name}" for name in importlib.import_module("monque.web").__all__),
    *(
        f"monque.testing.{name}"
        for name in (
            "run_handler",
            "rehearse",
            "Rehearsal",
            "JobCalls",
            "run_until_idle",
            "assert_enqueued",
            "assert_not_enqueued",
        )
    ),
    *(f"monque.pytest_plugin.{name}" for name in ("monque", "monque_uri", "replay", "monque_server")),
    *(f"monque.embedded.{name}" for name in ("EmbeddedMongo", "EmbeddedMongoError", "find_mongod")),
]
# Of types: they have no docstring.
ALIASES = {
    "monque.FILTERS",
    "monque.OPERATIONS",
    "monque.Overlap",
    "monque.Sort",
    "monque.Slowness",
    "monque.Direction",
    "monque.EventKind",
    "monque.CallNext",
    "monque.SyncCallNext",
    "monque.StatusName",
    "monque.UseName",
    "monque.fastapi.MonqueDep",
    "monque.litestar.MonqueDep",
    "monque.web.Auth",
    "monque.web.Authorize",
    "monque.web.DEFAULT_KEYS",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make docs` builds, built elsewhere: somebody may be building here."""
    folder = tmp_path_factory.mktemp("docs")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    shutil.copytree(ROOT / "docs", folder / "docs")
    (folder / "src").symlink_to(ROOT / "src")
    built = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder / "site"


def text_of(page: str) -> str:
    """The page as it is read, in one line and without stars."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", "", page))).replace("*", "")


def documented(name: str) -> Any:
    """What a dotted name stands for."""
    module = "monque"
    for candidate in ("fastapi", "flask", "litestar", "testing", "pytest_plugin", "embedded"):
        if name.startswith(f"monque.{candidate}."):
            module = f"monque.{candidate}"
    found: Any = importlib.import_module(module)
    for part in name.removeprefix(f"{module}.").split("."):
        found = inspect.getattr_static(found, part) if inspect.isclass(found) else getattr(found, part)
    return found


def test_the_reference_shows_each_name_once_and_with_its_docstring(site: Path) -> None:
    pages = [path.read_text() for path in (site / "reference").rglob("index.html")]
    shown = {page: text_of(page) for page in pages}
    anchors = Counter(anchor for page in pages for anchor in set(re.findall(r'id="([^"]+)"', page)))

    assert [name for name in NAMES if anchors[name] != 1] == []
    assert [name for name in NAMES if name not in ALIASES and not is_shown(name, shown)] == []


def is_shown(name: str, shown: dict[str, str]) -> bool:
    """Whether the page that has the name has the first line of its docstring."""
    first_line = (inspect.getdoc(documented(name)) or "").partition("\n")[0].replace("`", "").replace("*", "")
    [text] = [text for page, text in shown.items() if f'id="{name}"' in page]
    return bool(first_line) and first_line in text


def test_every_link_leads_to_an_anchor_that_exists(site: Path) -> None:
    anchors = {
        path.parent.resolve(): set(re.findall(r'id="([^"]+)"', path.read_text()))
        for path in site.rglob("index.html")
    }
    dead = []
    for path in site.rglob("index.html"):
        for link in re.findall(r'<a [^>]*href="([^":]*)"', path.read_text()):
            target, _, anchor = link.partition("#")
            there = anchors.get((path.parent / target).resolve())
            if there is None or (anchor and anchor not in there):
                dead.append(f"{path.relative_to(site)}: {link}")

    assert len(anchors) > 30
    assert dead == []


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"([\w/-]+\.md)", (ROOT / "mkdocs.yml").read_text()))

    assert listed == {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md"])
def test_the_links_of_a_page_outside_of_the_site_lead_to_files(page: str) -> None:
    source = ROOT / page
    links = re.findall(r"\]\(([^)#]+)", source.read_text())

    assert [
        link
        for link in links
        if "://" not in link and not link.startswith("mailto:") and not (source.parent / link).exists()
    ] == []


def test_examples_in_docstrings_stand_below_a_heading_that_the_reference_knows() -> None:
    """`Example:` would be shown as a quotation, without its line breaks."""
    singular = re.compile(r"^ +Example:$", re.MULTILINE)
    package = Path(monque.__file__).parent
    sources = [path for path in package.rglob("*.py") if "cli" not in path.relative_to(package).parts]

    assert len(sources) > 40
    assert [path.name for path in sources if singular.search(path.read_text())] == []
