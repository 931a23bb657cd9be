"""The jobs of `run_jobs` as values: their ids, their labels, and how they ended."""

from __future__ import annotations

from typing import Any

import pytest

from monque._store.children import as_children, child_id, ended_children, label_of, letters_of
from monque._store.document import Claim
from support.jobs import claimed

PARENT = claimed("me", name="order")
ENTRY = {"n": "pack", "k": "jobs", "batch": f"{PARENT['_id']}/0/pack"}


def parent(**fields: Any) -> Claim:
    return Claim.of_read({**PARENT, **fields})


def test_a_child_has_the_same_id_in_every_run_of_its_parent_and_no_other_has_it() -> None:
    runs = [parent(), parent(attempt=2, updatedAt=PARENT["updatedAt"], steps=[ENTRY])]
    labels = [label_of(runs[0], "pack"), label_of(runs[0], "send"), label_of(parent(redo=1), "pack")]
    labels.append(label_of(parent(_id=claimed("me")["_id"]), "pack"))
    ids = [[child_id(run, label, at) for label in labels for at in range(1000)] for run in runs]

    assert labels[:3] == [f"{PARENT['_id']}/{end}" for end in ("0/pack", "0/send", "1/pack")]
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 4000


def test_a_child_knows_its_parent_and_keeps_its_result() -> None:
    plain, limited = {"_id": 1, "name": "pack"}, {"_id": 2, "name": "pack", "policy": {"maxAttempts": 2}}

    first, second = as_children([plain, limited], parent(), ENTRY, first=7)

    assert first["_id"] == child_id(parent(), ENTRY["batch"], 7) != second["_id"]
    assert (first["batch"], first["policy"]) == (ENTRY["batch"], {"keepResult": True})
    assert second["parent"] == {"id": PARENT["_id"], "step": "pack", "at": 8}
    assert second["policy"] == {"maxAttempts": 2, "keepResult": True}


def child(at: Any, status: Any) -> dict[str, Any]:
    return {"_id": at, "status": status, "parent": {"at": at}}


@pytest.mark.parametrize(
    ("found", "count", "letters"),
    [
        ([], 0, ""),
        ([], 2, "--"),
        ([child(1, "failed"), child(0, "completed"), child(3, "cancelled")], 5, "cf-x-"),
        ([child(2, "completed")], 1, "--c"),
        ([child(0, "odd"), child("1", "completed"), child(-1, "failed"), child(10**9, "failed")], 2, "--"),
        ([{"_id": 1, "status": "completed"}, {"_id": 2, "parent": "odd"}], 1, "-"),
    ],
    ids=["none", "gone", "each state", "more than asked for", "odd", "no children"],
)
def test_the_states_of_children_are_a_letter_each_in_order(
    found: list[dict[str, Any]], count: int, letters: str
) -> None:
    assert letters_of(found, count) == letters


def test_what_became_of_a_child_later_does_not_change_how_it_ended() -> None:
    found = [{**child(0, "pending"), "result": 7}, child(2, "completed")]

    first, second, third = ended_children(parent(), {**ENTRY, "v": "fc-"}, found)

    assert first == {**child(0, "failed"), "result": 7}
    assert second == {"_id": child_id(parent(), ENTRY["batch"], 1), "status": "completed"}
    assert third is None
