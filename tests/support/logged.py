"""What was logged, as tests look at it."""

from __future__ import annotations

import logging

import pytest


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    """The lines of a level. That a machine stood still is left out: any test may meet that."""
    told = (record.getMessage() for record in caplog.records if record.levelno == level)
    return [line for line in told if level != logging.WARNING or "stood still" not in line]
