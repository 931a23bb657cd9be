"""The command `monque`: one function a command, each in the file of its name."""

from __future__ import annotations

import sys

_EXTRA = ("click", "rich")


def main() -> None:
    """What the command `monque` does."""
    try:
        from monque.cli.commands import monque

        monque(prog_name="monque")
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        sys.exit(f"monque: the command line needs {error.name}; install it with: pip install 'pymonque[cli]'")
