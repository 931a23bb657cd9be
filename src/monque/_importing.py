"""Refuse to open a Monque in a child process that is still importing the code of its handlers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from monque._values.errors import ConfigurationError

_importing: list[str] = []


@contextmanager
def importing(address: str) -> Iterator[None]:
    """Import the handler at *address*: the code of its module may define, but not begin to work."""
    _importing.append(address)
    try:
        yield
    finally:
        _importing.pop()


def refuse_while_importing() -> None:
    """Refuse to open a Monque in code that runs when a child process imports it.

    Without this, each child would start the whole program again.
    """
    if _importing:
        raise ConfigurationError(
            f"a child process imports {_importing[-1]}, and that file opens a Monque when it is imported; "
            'put what the program does below `if __name__ == "__main__":`'
        )
