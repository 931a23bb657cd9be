"""How many jobs the largest tests store."""

from __future__ import annotations

import os

FULL = bool(os.environ.get("MONQUE_TEST_FULL"))


def at_scale(full: int, small: int) -> int:
    """As many as the specification names with `make test FULL=1`; otherwise enough to show the same."""
    return full if FULL else small
