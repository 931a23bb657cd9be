"""Write `src/tables.ts`: the filters and the operations of the server, as tables for the pages.

With `--check` it only says whether the file is the one it would write.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from monque import FILTERS, OPERATIONS, FilterField, Operation

_NOT_TYPED = ("status", "since", "until")
TARGET = Path(__file__).parent / "src" / "tables.ts"
_HEAD = """\
// Made from monque.FILTERS and monque.OPERATIONS by `make tables`.
import type { OpsBulkBody, OpsJob } from "./api.gen";

export interface FilterField {
  key: string;
  kind: %s;
  label: string;
  /** What people type before a value; the others have chips and fields. */
  word?: string;
  choices?: readonly string[];
  minimum?: number;
  maximum?: number;
}

export interface Operation {
  name: OpsBulkBody["action"];
  route: OpsJob["actions"][number];
  verb: string;
  done: string;
  asks: boolean;
  /** The states that it applies to; none: all of them. */
  states?: readonly OpsJob["status"][];
  bulkRights: readonly string[];
  options: readonly { name: keyof OpsBulkBody; kind: %s; required: boolean }[];
}
"""


def tables() -> str:
    """The file. Biome leaves it as it is: a row is a line."""
    filters = [_filter(each) for each in FILTERS.values()]
    operations = [_operation(each) for each in OPERATIONS.values()]
    head = _HEAD % (_kinds(filters), _kinds(option for each in operations for option in each["options"]))
    return "\n".join(
        [head, *_table("FILTERS", "FilterField", filters), *_table("OPERATIONS", "Operation", operations)]
    )


def _kinds(rows: Iterable[Mapping[str, Any]]) -> str:
    return " | ".join(sorted({json.dumps(row["kind"]) for row in rows}))


def _filter(field: FilterField) -> dict[str, Any]:
    bounds = {"choices": field.choices, "minimum": field.minimum, "maximum": field.maximum}
    given = {name: value for name, value in bounds.items() if value not in ((), None)}
    typed = {} if field.kind in _NOT_TYPED else {"word": field.word, **given}
    return {"key": field.sent_as, "kind": field.kind, "label": field.label, **typed}


def _operation(operation: Operation) -> dict[str, Any]:
    options = [
        {"name": each.sent_as, "kind": each.kind, "required": each.required}
        for each in operation.options
        if each.sent_as
    ]
    states = {} if operation.applies_to is None else {"states": sorted(operation.applies_to)}
    return {
        "name": operation.name,
        "route": operation.route,
        "verb": operation.verb,
        "done": operation.done[0].upper() + operation.done[1:],
        "asks": operation.asks,
        **states,
        "bulkRights": operation.bulk_rights,
        "options": options,
    }


def _table(name: str, kind: str, rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    yield f"export const {name}: readonly {kind}[] = ["
    yield from (f"  {_row(row)}," for row in rows)
    yield from ("];", "")


def _row(row: Mapping[str, Any]) -> str:
    """A row as people write it in TypeScript: the quotes around its keys go."""
    return re.sub(r'"(\w+)": ', r"\1: ", json.dumps(row))


def main(arguments: list[str]) -> int:
    """Write the file, or compare it."""
    text = tables()
    if arguments == ["--check"]:
        is_current = TARGET.is_file() and TARGET.read_text() == text
        return 0 if is_current else _say("ui/src/tables.ts is not what `make tables` writes")
    TARGET.write_text(text)
    return 0


def _say(problem: str) -> int:
    sys.stderr.write(f"{problem}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
