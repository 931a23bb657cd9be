"""What handlers raised, as it is kept with the job and as it is logged."""

from __future__ import annotations

import logging
import traceback

import pytest

from monque._values.words import bounded, describe

LONG = "x" * 20_000_000
BOUND = 100_000


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    """With a traceback, as everything that was raised has one."""
    try:
        raise error from cause
    except BaseException as caught:  # noqa: BLE001 - also groups
        return caught


def printed(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


class OddError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text to be had")


def test_a_group_is_described_with_the_errors_in_it() -> None:
    group = ExceptionGroup("unhandled errors in a TaskGroup", [ValueError("bad address"), KeyError("user")])

    assert describe(group) == (
        "ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions): "
        "ValueError: bad address; KeyError: 'user'"
    )


def test_groups_in_groups_are_described_by_what_is_in_them() -> None:
    inner = ExceptionGroup("inner", [KeyError("user"), OddError()])
    group = BaseExceptionGroup("outer", [ExceptionGroup("middle", [inner]), SystemExit(3)])

    assert describe(group) == (
        "BaseExceptionGroup: outer (2 sub-exceptions): "
        "KeyError: 'user'; OddError: (its message cannot be shown); SystemExit: 3"
    )


def test_of_many_errors_in_a_group_some_are_described_and_the_others_counted() -> None:
    group = ExceptionGroup("many", [ValueError(str(number)) for number in range(1_000)])
    reason = describe(group)

    assert reason.startswith("ExceptionGroup: many (1000 sub-exceptions): ValueError: 0; ValueError: 1; ")
    assert reason.endswith("ValueError: 9; and 990 more")


def test_long_errors_in_a_group_are_cut_so_that_all_are_named() -> None:
    group = ExceptionGroup(LONG, [ValueError(LONG), KeyError("user"), ValueError(LONG), TypeError("last")])
    reason = describe(group)

    assert len(reason) <= 8_000
    assert "; KeyError: 'user'; ValueError: xxx" in reason
    assert reason.endswith("; TypeError: last")


def test_groups_nested_very_deeply_are_described() -> None:
    error: Exception = ValueError("at the bottom")
    for _ in range(5_000):
        error = ExceptionGroup("deeper", [error])

    assert describe(error) == "ExceptionGroup: deeper (1 sub-exception): ValueError: at the bottom"


def test_an_error_of_usual_length_is_logged_itself() -> None:
    error = raised(ExceptionGroup("two", [ValueError("a"), KeyError("b")]), cause=OSError("c"))

    assert bounded(error) is error


class ServiceError(Exception):
    pass


@pytest.mark.parametrize(
    "error",
    [
        ServiceError(LONG),
        raised(ServiceError("short"), cause=ValueError(LONG)),
        ExceptionGroup("short", [ServiceError(LONG)]),
        ExceptionGroup(LONG, [ServiceError("short")]),
    ],
    ids=["text", "cause", "in a group", "of a group"],
)
def test_a_long_text_is_cut_for_the_log_and_type_and_traceback_stay(error: BaseException) -> None:
    text = printed(bounded(raised(error, cause=error.__cause__)))

    assert "ServiceError: " in text
    assert "in raised" in text
    assert len(text) < BOUND


def test_a_long_text_behind_an_error_is_cut_too() -> None:
    try:
        try:
            raise ValueError(LONG)
        except ValueError:
            raise ServiceError("short")  # noqa: B904 - its context is what counts here
    except ServiceError as error:
        text = printed(bounded(error))

    assert "ValueError: xxx" in text
    assert "During handling of the above exception" in text
    assert "test_raised.ServiceError: short" in text
    assert len(text) < BOUND


def test_long_notes_are_cut() -> None:
    error = ServiceError("short")
    error.add_note("see also " + LONG)
    text = printed(bounded(raised(error)))

    assert "see also xxx" in text
    assert len(text) < BOUND


def test_notes_that_are_none_can_be_logged() -> None:
    error = ServiceError(LONG)
    error.__notes__ = 7

    assert len(printed(bounded(raised(error)))) < BOUND


def test_a_very_long_chain_of_errors_is_cut() -> None:
    error: Exception = ValueError("the first")
    for number in range(5_000):
        later = ValueError(str(number))
        later.__cause__ = error
        error = later

    assert len(printed(bounded(error))) < BOUND


def test_an_error_that_is_its_own_cause_can_be_logged() -> None:
    one, two = ValueError("one"), ValueError(LONG)
    one.__cause__, two.__cause__ = two, one

    assert len(printed(bounded(one))) < 10 * BOUND


def test_an_error_without_a_text_can_be_logged(caplog: pytest.LogCaptureFixture) -> None:
    error = raised(OddError(), cause=ValueError(LONG))
    logging.getLogger("monque").error("failed", exc_info=bounded(error))

    assert "OddError: (its message cannot be shown)" in caplog.text
