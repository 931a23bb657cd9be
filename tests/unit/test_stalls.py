"""How a blocked event loop is told."""

from __future__ import annotations

from monque._engine.upkeep import Handling, describe_stall


def test_the_warning_does_not_grow_with_the_number_of_handlers() -> None:
    many = [Handling("work", number, float(number)) for number in range(1000)]

    assert "work (job 999, for 999.0 s)" in describe_stall(2.0, many)
    assert "and 995 more" in describe_stall(2.0, many)
    assert len(describe_stall(2.0, many)) < 500
