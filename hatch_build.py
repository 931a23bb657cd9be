"""The pages of the dashboard are in the wheel and in the sdist, and not in git: build them where needed.

This is the build backend, too: Hatchling, but for what an editable install needs.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hatchling import build
from hatchling.build import *  # noqa: F403 - which functions there are depends on who builds
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

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
        if version == "editable":  # `make ui` builds those of a checkout
            return
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


def _is_skipped() -> bool:
    chosen = os.environ.get("MONQUE_UI", "")
    if chosen not in ("", "skip"):
        raise ValueError(f'MONQUE_UI is "{chosen}"; the only choice is "skip", which leaves the pages out')
    return chosen == "skip"
