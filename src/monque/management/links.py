"""Where things are on the pages: paths relative to the dashboard, never taken from data as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import quote

_PAGES: Mapping[str, Callable[[str], str]] = {
    "job": lambda what: f"jobs/{quote(what, safe='')}",
    "schedule": lambda what: f"schedules/{quote(what, safe='')}",
    "group": lambda what: f"failures/{quote(what, safe='')}",
    "instance": lambda what: f"instance?id={quote(what, safe='')}",
    "queue": lambda what: f"queue?name={quote(what, safe='')}",
    "failures": lambda what: f"failures?name={quote(what, safe='')}",
    # What the doctor finds stands on the first screen.
    "doctor": lambda _: "",
}


def href_of(link: str | None) -> str | None:
    """The path of what the core names as `job:ID`, `queue:NAME` and so on; None for what has no page."""
    kind, _, what = (link or "").partition(":")
    return _PAGES[kind](what) if kind in _PAGES else None
