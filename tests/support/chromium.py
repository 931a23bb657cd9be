"""Which Chromium draws the pages."""

from __future__ import annotations

import os
import shutil

_NAMES = ("chromium-headless-shell", "chromium", "google-chrome")

MISSING = (
    "no browser: set one up with `make browser`, or set MONQUE_CHROMIUM to the path of a Chromium "
    f"(looked for {', '.join(_NAMES)} on PATH)"
)


def find_chromium() -> str | None:
    """The path of a Chromium: MONQUE_CHROMIUM if set, else the first that is on PATH; None without one."""
    if given := os.environ.get("MONQUE_CHROMIUM"):
        return given
    return next(filter(None, map(shutil.which, _NAMES)), None)


def arguments() -> list[str]:
    """What Chromium is started with. Its sandbox does not work for root, as in most containers."""
    # /dev/shm has 64 MB in many containers, and a page that needs more crashes.
    return ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.getuid() == 0 else [])]
