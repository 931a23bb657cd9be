"""Stored documents are those of the golden file: instances of other versions and languages read them."""

from __future__ import annotations

from support.aliases import Collection
from support.each_kind import Stored
from support.golden import as_json, assert_golden


async def test_documents_of_each_kind_have_not_changed(stored: Stored, collection: Collection) -> None:
    documents = await collection.find().to_list()
    assert_golden("wire.json", as_json({doc["name"]: doc for doc in documents}))


async def test_the_document_of_each_index_has_not_changed(stored: Stored, collection: Collection) -> None:
    indexes = await collection.index_information()
    assert_golden(
        "indexes.json",
        as_json({name: {**index, "key": dict(index["key"])} for name, index in indexes.items()}),
    )
