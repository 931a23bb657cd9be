"""When an owner counts as dead."""

from __future__ import annotations

from datetime import timedelta

import pytest

from monque._store.transitions.recovery import allowed_silence

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("tolerance", "interval", "allowed"),
    [(90, 30, 90), (40, 30, 90), (30, 30, 90), (91, 30, 91)],
)
def test_an_owner_may_be_silent_for_the_tolerance_and_for_three_intervals(
    tolerance: int, interval: int, allowed: int
) -> None:
    silence = allowed_silence(tolerance=tolerance * SECOND, interval=interval * SECOND)

    assert silence == allowed * SECOND
