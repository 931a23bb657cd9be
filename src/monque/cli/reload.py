"""Noticing that source files have changed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

_INTERVAL = 0.5
_NOT_SOURCE = frozenset({"__pycache__", "node_modules", "site-packages"})


async def changes(folder: Path) -> AsyncIterator[list[Path]]:
    """The Python files below *folder* that were changed, made or removed, each time there are any."""
    before = await asyncio.to_thread(modified_times, folder)
    while True:
        await asyncio.sleep(_INTERVAL)
        after = await asyncio.to_thread(modified_times, folder)
        differing = {path for path, _ in before.items() ^ after.items()}
        before = after
        if differing:
            yield sorted(differing)


def modified_times(folder: Path) -> dict[Path, int]:
    """When each Python file below *folder* was last written; hidden folders and packages are left out."""
    found: dict[Path, int] = {}
    for place, folders, files in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and name not in _NOT_SOURCE and not _is_environment(Path(place, name))
        ]
        for name in files:
            if name.endswith(".py"):
                path = Path(place, name)
                try:
                    found[path] = path.stat().st_mtime_ns
                except OSError:
                    continue  # it was removed just now
    return found


def _is_environment(folder: Path) -> bool:
    return (folder / "pyvenv.cfg").exists()
