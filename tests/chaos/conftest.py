"""The chaos package stands beside the tests, not among what is installed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.tales import Tale

sys.path.append(str(Path(__file__).parents[2]))


@pytest.fixture
def tale() -> Tale:
    """A job that was stored, run and completed, besides whatever a test tells."""
    from support.tales import Tale

    tale = Tale()
    tale.store(1.0, "good")
    tale.run(2.0, "ann", "good")
    tale.found("good")
    return tale
