"""The command `monque`: one function a command; `commands.py` knows the file of each."""

from __future__ import annotations

import sys

_EXTRA = ("click", "rich")


def main() -> None:
    """Run the command `monque`."""
    try:
        from monque.cli.commands import monque

        monque(prog_name="monque")
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        sys.exit(f"monque: the command line needs {error.name}; install it with: pip install 'pymonque[cli]'")
