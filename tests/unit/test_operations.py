"""The table of operations, as values: rights that exist, words, states, options and their checks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, get_args, get_type_hints

import pytest

import monque
from monque import (
    OPERATIONS,
    ConfigurationError,
    JobStateError,
    JobStatus,
    Operation,
    OperationOption,
    OperationOptions,
)
from monque.web.access.permissions import Action
from monque.web.job_view import Display

EVERY = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=list(OPERATIONS))

KINDS = {"flag": bool, "time": datetime, "duration": timedelta, "priority": int, "text": str}
VALUES: dict[str, Any] = {
    "spread": timedelta(minutes=1),
    "from_step": "charge",
    "from_start": True,
    "run_at": datetime(2040, 1, 1, tzinfo=UTC),
    "priority": 3,
    "running": True,
}


def required(operation: Operation) -> dict[str, Any]:
    return {each.name: VALUES[each.name] for each in operation.options if each.required}


@EVERY
def test_each_operation_has_words_and_rights_that_exist(operation: Operation) -> None:
    assert OPERATIONS[operation.name] is operation
    assert {operation.right, *operation.bulk_rights} <= set(Action)
    assert operation.unless <= set(get_args(Display))
    for words in (operation.verb, operation.done, operation.summary, operation.word, operation.many):
        assert words == words.strip() != ""
    assert not operation.summary.endswith(".")


def test_names_and_routes_are_each_used_once() -> None:
    assert len({each.route for each in OPERATIONS.values()}) == len(OPERATIONS)
    assert len({each.many for each in OPERATIONS.values()}) == len(OPERATIONS)


def test_the_keywords_of_act_and_bulk_are_the_options_of_the_table() -> None:
    options = {each.name: each for operation in OPERATIONS.values() for each in operation.options}

    assert {name: KINDS[each.kind] for name, each in options.items()} == get_type_hints(OperationOptions)


@EVERY
@pytest.mark.parametrize("status", [*JobStatus, "odd", {"no": "hash"}], ids=str)
def test_a_job_is_refused_in_the_states_that_are_not_in_the_table(operation: Operation, status: Any) -> None:
    if operation.applies_to is None or status in tuple(operation.applies_to):
        operation.check(status, 7)
        return
    with pytest.raises(JobStateError, match=f"^cannot {operation.word} job 7: it is ") as refusal:
        operation.check(status, 7)
    assert refusal.value.attempted_action == operation.word


@EVERY
def test_transitions_begin_in_the_states_of_the_table(operation: Operation) -> None:
    if operation.transitions is None:
        assert operation.applies_to is None
        return
    every = {each.name: VALUES[each.name] for each in operation.options if each.name != "from_start"}
    transitions = operation.transitions(
        **operation.arguments("why" if operation.keeps_reason else None, every)
    )
    begins = [each.when["status"] for each in transitions]
    found = {each for begin in begins for each in (begin["$in"] if isinstance(begin, dict) else [begin])}

    assert found == operation.states(every)


def test_a_flag_adds_its_states() -> None:
    cancel = OPERATIONS["cancel"]

    assert cancel.states() == cancel.states({"running": False}) == {JobStatus.PENDING}
    assert cancel.states({"running": True}) == {JobStatus.PENDING, JobStatus.PROCESSING}
    cancel.check(JobStatus.PROCESSING, 7, {"running": True})


@pytest.mark.parametrize(
    ("operation", "sentence"),
    [
        ("retry", "Only failed and cancelled jobs change."),
        ("stop", "Only running jobs change."),
        ("delete", ""),
    ],
)
def test_a_sentence_says_which_jobs_change(operation: str, sentence: str) -> None:
    assert OPERATIONS[operation].only() == sentence


@EVERY
@pytest.mark.parametrize("single", [True, False])
def test_an_option_of_another_operation_is_refused(operation: Operation, single: bool) -> None:
    known = {each.name for each in operation.options if each.single or not single}

    for name, value in VALUES.items():
        if name not in known:
            with pytest.raises(ConfigurationError, match=f"{name} is no option of {operation.name}"):
                operation.arguments(None, {**required(operation), name: value}, single=single)
    with pytest.raises(ConfigurationError, match="nope is no option"):
        operation.arguments(None, {"nope": 1})


@EVERY
def test_a_missing_option_is_named(operation: Operation) -> None:
    assert set(operation.arguments(None, required(operation))) >= set(required(operation))
    for name in required(operation):
        with pytest.raises(ConfigurationError, match=f"{operation.name} needs {name}: "):
            operation.arguments(None, {})


@EVERY
@pytest.mark.parametrize("wrong", [None, "", -1, b"x"], ids=repr)
def test_a_wrong_value_is_refused(operation: Operation, wrong: Any) -> None:
    for option in operation.options:
        with pytest.raises(ConfigurationError, match=f"^{option.name} must "):
            operation.arguments(None, {**required(operation), option.name: wrong})


@EVERY
def test_a_note_is_an_argument_where_it_is_kept_and_checked_everywhere(operation: Operation) -> None:
    arguments = operation.arguments("why", required(operation))

    assert arguments.get("reason") == ("why" if operation.keeps_reason else None)
    with pytest.raises(ConfigurationError, match="reason must be text"):
        operation.arguments(" ", required(operation))


def test_an_operation_of_ones_own_has_words_by_default() -> None:
    operation = Operation(
        name="expedite",
        applies_to=frozenset({JobStatus.PENDING}),
        right="prioritize",
        bulk_rights=("prioritize",),
        verb="Expedite",
        done="expedited",
        summary="Let jobs run before all others",
        transitions=lambda: (),
        options=(OperationOption(name="running", kind="flag", help="Also those."),),
    )

    assert (operation.word, operation.many, operation.route) == ("expedite", "expedite many", "expedite")


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        monque.OPERATIONS["retry"] = OPERATIONS["delete"]
