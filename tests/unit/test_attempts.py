"""What the history keeps of an error: bounded, storable, without values of variables, whatever it is."""

from __future__ import annotations

import traceback
from typing import Any

import bson
import pytest

from monque._values import history
from monque._values.history import entry_of, trace_of


def caught(error: BaseException, cause: BaseException | None = None) -> BaseException:
    secret = "s3cret-in-a-variable"  # noqa: F841 - it must not be shown
    try:
        raise error from cause
    except BaseException as raised:  # noqa: BLE001 - what is raised may be anything
        return raised


def recursed() -> BaseException:
    def again(n: int) -> int:
        return again(n + 1)

    try:
        again(0)
    except RecursionError as error:
        return error
    raise AssertionError


class Unprintable(Exception):  # noqa: N818 - its name is its story
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    "error",
    [
        caught(ValueError("$set: {}")),
        caught(ValueError("a\0b")),
        caught(ValueError("\ud800 lone")),
        caught(ValueError("x" * 1_000_000)),
        caught(Unprintable()),
        caught(ValueError("top"), caught(Unprintable())),
        caught(ExceptionGroup("many", [ValueError(str(n)) for n in range(1000)])),
        caught(type("N" * 10_000, (Exception,), {})("long name")),
        recursed(),
        SystemExit(1),
    ],
    ids=["$", "NUL", "surrogate", "1 MB", "__str__", "cause", "group", "name", "recursion", "not raised"],
)
def test_whatever_is_raised_can_be_stored_within_its_bounds(error: BaseException) -> None:
    entry = entry_of(error, "failed", ran=1.0, keep=10, traces=True)

    assert entry is not None
    assert len(entry.error) <= 200
    assert len(entry.message) <= 1_000
    assert entry.trace is not None
    assert len(entry.trace) <= 4_000
    bson.encode({"error": entry.error, "message": entry.message, "trace": entry.trace})


def test_the_trace_shows_lines_of_code_and_no_values() -> None:
    trace = trace_of(caught(ValueError("no")))

    assert trace is not None
    assert "raise error from cause" in trace
    assert "s3cret" not in trace
    assert trace.endswith("ValueError: no")


def test_the_end_of_a_long_trace_is_kept() -> None:
    trace = trace_of(recursed())

    assert trace is not None
    assert "return again(n + 1)" in trace
    assert "repeated" in trace
    assert trace.splitlines()[-1].startswith("RecursionError: maximum recursion depth")


def test_causes_get_a_line_each() -> None:
    error = caught(ValueError("third"), caught(KeyError("second"), caught(OSError("first"))))

    trace = trace_of(error)

    assert trace is not None
    assert trace.splitlines()[-3:] == [
        "ValueError: third",
        "because of KeyError: 'second'",
        "because of OSError: first",
    ]


def test_very_many_causes_leave_room_for_the_frames() -> None:
    error = caught(ValueError("0" * 500))
    for n in range(100):
        error = caught(ValueError(f"{n}" * 500), error)

    trace = trace_of(error)

    assert trace is not None
    assert "raise error from cause" in trace
    assert len(trace) <= 4_000


def test_nothing_is_made_if_no_history_is_kept() -> None:
    assert entry_of(ValueError(), "failed", ran=1.0, keep=0, traces=True) is None


def test_errors_of_two_lines_keep_their_own_traces_and_those_of_one_line_share_theirs() -> None:
    def raised(number: int) -> BaseException:
        try:
            if number % 2:
                raise ValueError(number)
            raise ValueError(number)
        except ValueError as error:
            return error

    traces = [trace_of(raised(number)) or "" for number in range(6)]
    places = [trace.rpartition("\n")[0] for trace in traces]

    assert [trace.rpartition("\n")[2] for trace in traces] == [f"ValueError: {n}" for n in range(6)]
    assert places[0] == places[2] == places[4] != places[1] == places[3] == places[5]


def test_a_trace_is_as_python_formats_it_also_the_second_time() -> None:
    error = caught(ValueError("no"))
    expected = "".join(traceback.format_tb(error.__traceback__)) + "ValueError: no"

    assert [trace_of(error) for _ in range(2)] == [expected] * 2


def test_errors_of_ever_new_code_keep_no_more_than_some_traces() -> None:
    for number in range(1_000):
        namespace: dict[str, Any] = {}
        exec(compile(f"def fail():\n    raise ValueError({number})", f"<{number}>", "exec"), namespace)  # noqa: S102
        with pytest.raises(ValueError, match=str(number)) as raised:
            namespace["fail"]()
        assert f"<{number}>" in (trace_of(raised.value) or "")

    assert len(history._KNOWN_TRACES) <= 256
