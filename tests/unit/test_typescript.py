"""Which good cron expressions the parser of TypeScript instances refuses or reads differently."""

from __future__ import annotations

import pytest

from monque._ops.typescript import misread
from monque._time.cron import Cron


@pytest.mark.parametrize(
    "expression",
    [
        "* * * * *",
        "*/15 * * * *",
        "5/15 * * * *",
        "5-5/1 * * * *",
        "0 9 * * MON-MON/1",
        "0 9 * * MON-FRI",
        "0 9 * * mon,wed,fri",
        "0 0 L * *",
        "0 0 * * 5L",
        "0 0 * * MON#2",
        "0 0 * jul,aug *",
        "0 0 1-10,20-30/5 * *",
        "0 0 * * 5-7",
        "0 0 1 * MON",
        "0 0 */1 * MON",
        "0 0 */2 * *",
        "@daily",
    ],
)
def test_what_both_read_alike(expression: str) -> None:
    assert misread(Cron.parse(expression).expression) is None


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("0 9 * * MON-FRI,5", "repeated value, here in the field day of week"),
        ("0 9 * * 0,7", "repeated value, here in the field day of week"),
        ("0 9 * * 5-7,SUN", "repeated value, here in the field day of week"),
        ("0,0 9 * * *", "repeated value, here in the field minute"),
        ("*/10,30 9 * * *", "repeated value, here in the field minute"),
        ("0 9-17,12 * * *", "repeated value, here in the field hour"),
        ("0 0 1,1 * *", "repeated value, here in the field day of month"),
        ("0 0 1 JAN,1 *", "repeated value, here in the field month"),
        ("0 0 LW * *", "LW"),
        ("0 0 l * *", "lower-case l"),
        ("0 0 * * 5l", "lower-case l"),
        ("0 0 * * MON#1,MON#3", "# beside"),
        ("0 0 */2 * MON", "either"),
        ("0 0 1 * */2", "either"),
    ],
)
def test_what_they_misread(expression: str, problem: str) -> None:
    told = misread(Cron.parse(expression).expression)

    assert told is not None
    assert problem in told
