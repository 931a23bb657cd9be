"""`ui/make_tables.py` writes the tables of the pages."""

from __future__ import annotations

from monque import FILTERS, OPERATIONS
from support.packaging import tool

make_tables = tool("ui/make_tables.py")


def test_the_tables_of_the_pages_are_those_of_the_core() -> None:
    assert make_tables.TARGET.read_text() == make_tables.tables(), "run `make tables`"


def test_a_table_has_a_row_for_each_filter_and_each_operation() -> None:
    text = make_tables.tables()

    for field in FILTERS.values():
        assert f'{{key: "{field.sent_as}", kind: "{field.kind}", label: "{field.label}"' in text
    for operation in OPERATIONS.values():
        assert f'{{name: "{operation.name}", route: "{operation.route}", verb: "{operation.verb}"' in text
