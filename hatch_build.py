"""The pages of the dashboard are in the wheel and in the sdist, and not in git: build them where needed.

The README of the package has absolute links, if the build is told where the repository and the site are.
This is the build backend, too: Hatchling, but for what an editable install needs.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from hatchling import build
from hatchling.build import *  # noqa: F403 - which functions there are depends on who builds
from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent / "ui"))

import build_pages

_STATIC = "src/monque/web/static"


def get_requires_for_build_editable(  # type: ignore[no-redef]  # in place of that of Hatchling
    config_settings: dict[str, Any] | None = None,
) -> list[str]:
    """An editable install has no pages, so it needs no Node. The hook cannot tell: it is asked for wheels."""
    needed = build.get_requires_for_build_editable(config_settings)
    return [each for each in needed if each != build_pages.NODE_WHEEL]


class PagesHook(BuildHookInterface[Any]):
    """Put built pages into what is built.

    Current pages are taken as they are: an sdist has them, so its wheel needs no Node. Otherwise they are
    built, with the Node on PATH or with the one of a wheel. `MONQUE_UI=skip` leaves them out.
    """

    def dependencies(self) -> list[str]:
        if _is_skipped() or build_pages.is_current() or build_pages.find_node() is not None:
            return []
        return [build_pages.NODE_WHEEL]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # `make ui` builds those of a checkout, which has the shop in its place
            return
        if self.target_name == "wheel":  # for `monque demo --web`
            shop = (Path(self.root) / "examples" / "shop").glob("*.py")
            build_data["force_include"] |= {str(path): f"monque/examples/shop/{path.name}" for path in shop}
        if _is_skipped():
            self.app.display_warning("MONQUE_UI=skip: this package has no dashboard pages, only their API.")
            return
        if not build_pages.is_current():
            self._build()
        build_data["artifacts"].append(_STATIC)
        if self.target_name == "wheel":
            build_data["artifacts"].append(f"!{_STATIC}/{build_pages.STAMP.name}")

    def _build(self) -> None:
        self.app.display_info("Building the pages of the dashboard ...")
        try:
            build_pages.build()
        except build_pages.BuildError as error:
            self.app.abort(f"{error}\nMONQUE_UI=skip builds the package without the pages.")


class ReadmeHook(MetadataHookInterface):
    """Make the links of the README absolute, since a registry has no files beside it, and name addresses.

    `MONQUE_REPOSITORY_URL` and `MONQUE_SITE_URL` name them. Without both of them the links stay relative.
    """

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        repository, site = (_address(f"MONQUE_{name}_URL") for name in ("REPOSITORY", "SITE"))
        if repository and site:
            text = absolute(text, repository, site)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = {
            **({"Documentation": site, "Reference": f"{site}/reference/monque/"} if site else {}),
            **({"Source": repository, "Issues": f"{repository}/issues"} if repository else {}),
            **({"Changelog": f"{repository}/blob/HEAD/CHANGELOG.md"} if repository else {}),
        }


# Behind "](" of a link, or in the attribute of a picture; an address with a scheme or a bare anchor is none.
_RELATIVE = re.compile(
    r'(?P<before>\]\(|\b(?:src|srcset|href)=")(?P<path>(?![\w+.-]+:|#)[^)"#\s]+)(?P<anchor>#[\w-]+)?'
)


def absolute(text: str, repository: str, site: str) -> str:
    """The Markdown *text* with links that work from everywhere: to the site, or to the repository."""

    def target(found: re.Match[str]) -> str:
        path = found["path"]
        if path.startswith("docs/"):
            page = re.sub(r"(^|/)index\.md$", r"\1", path.removeprefix("docs/"))
            address = f"{site}/{re.sub(r'[.]md$', '/', page)}"
        else:
            address = f"{repository}/blob/HEAD/{path}"
        return f"{found['before']}{address}{found['anchor'] or ''}"

    return _RELATIVE.sub(target, text)


def _address(variable: str) -> str:
    given = os.environ.get(variable, "").rstrip("/")
    if given and not given.startswith("https://"):
        raise ValueError(f'{variable} is "{given}"; it must begin with https://')
    return given


def _is_skipped() -> bool:
    chosen = os.environ.get("MONQUE_UI", "")
    if chosen not in ("", "skip"):
        raise ValueError(f'MONQUE_UI is "{chosen}"; the only choice is "skip", which leaves the pages out')
    return chosen == "skip"
