"""Reads documents whatever they hold: one that the driver refuses to decode must not hide the others.

The server stores a binary of the subtypes 2, 3 and 4 with any length. PyMongo decodes only those with the
right one, and one wrong value fails the whole answer with `InvalidBSON`. So every read of `_store` goes
through this module: on that error it reads again without decoding, and decodes value by value. Any other read
costs nothing more.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

import bson
from bson.binary import USER_DEFINED_SUBTYPE, Binary
from bson.codec_options import CodecOptions
from bson.errors import InvalidBSON
from bson.raw_bson import RawBSONDocument
from pymongo import ReturnDocument
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection

from monque._store.document import Document

D = TypeVar("D", bound=Mapping[str, Any])

RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)
"""Leaves documents as bytes."""


async def find(
    collection: AsyncCollection[D], query: Document, fields: Document | None = None, **how: Any
) -> list[D]:
    """All documents that match."""
    try:
        return await collection.find(query, fields, **how).to_list()
    except InvalidBSON:
        found = await _raw(collection).find(query, fields, **how).to_list()
        return [_decoded(collection, each) for each in found]


async def find_one(
    collection: AsyncCollection[D], query: Document, fields: Document | None = None, **how: Any
) -> D | None:
    """One document that matches."""
    try:
        return await collection.find_one(query, fields, **how)
    except InvalidBSON:
        found = await _raw(collection).find_one(query, fields, **how)
        return None if found is None else _decoded(collection, found)


async def aggregate(collection: AsyncCollection[D], stages: Sequence[Document], **how: Any) -> list[D]:
    """What a pipeline yields."""
    try:
        return await (await collection.aggregate(stages, **how)).to_list()
    except InvalidBSON:
        found = await (await _raw(collection).aggregate(stages, **how)).to_list()
        return [_decoded(collection, each) for each in found]


async def find_one_and_update(
    collection: AsyncCollection[D],
    query: Document,
    update: Document | list[Document],
    *,
    upsert: bool = False,
    session: AsyncClientSession | None = None,
) -> D | None:
    """Change one document, and return it as it is since. The change must do no harm if it is done twice.

    Not without decoding from the start: the driver cannot report a failed write concern then.
    """
    how: dict[str, Any] = {"return_document": ReturnDocument.AFTER, "session": session}
    try:
        return await collection.find_one_and_update(query, update, upsert=upsert, **how)
    except InvalidBSON:
        # The document is changed; or a unique index refused that, and its error holds what cannot be decoded.
        found = await _raw(collection).find_one_and_update(query, update, upsert=upsert, **how)
        if found is None and "_id" in query:
            return await find_one(collection, {"_id": query["_id"]}, session=session)
        return None if found is None else _decoded(collection, found)


def decode(data: bytes | memoryview, options: CodecOptions[Document]) -> Document:
    """Decode a document; a value that the driver refuses becomes a `Binary`.

    One of the subtypes 3 and 4 is what is stored, so that a query with it finds the document.
    """
    try:
        return bson.decode(data, options)
    except InvalidBSON:
        return _by_key(bytes(data), options)


def _raw(collection: AsyncCollection[Any]) -> AsyncCollection[RawBSONDocument]:
    return collection.with_options(codec_options=RAW)


def _decoded(collection: AsyncCollection[D], document: RawBSONDocument) -> D:
    return cast("D", decode(document.raw, cast("CodecOptions[Document]", collection.codec_options)))


# How long the values of those types are that have one length: 0x0A is null, 0x07 an id.
_SIZES = {
    **dict.fromkeys((0x06, 0x0A, 0x7F, 0xFF), 0),
    **dict.fromkeys((0x01, 0x09, 0x11, 0x12), 8),
    0x07: 12,
    0x08: 1,
    0x10: 4,
    0x13: 16,
}
_DOCUMENT, _ARRAY, _BINARY, _REGEX, _POINTER, _SCOPED_CODE = 0x03, 0x04, 0x05, 0x0B, 0x0C, 0x0F
_LENGTH = struct.Struct("<i")
_OLD_BINARY_SUBTYPE = 2


def _by_key(data: bytes, options: CodecOptions[Document]) -> Document:
    return {key: _value(kind, value, options) for key, kind, value in _elements(data, options)}


def _elements(data: bytes, options: CodecOptions[Document]) -> Iterator[tuple[str, int, bytes]]:
    """The key, the type and the bytes of each value of a document."""
    place = _LENGTH.size
    try:
        while data[place]:
            kind, begin = data[place], data.index(0, place) + 1
            key = data[place + 1 : begin - 1].decode(errors=options.unicode_decode_error_handler or "replace")
            place = begin + _size(kind, data, begin)
            if not begin <= place < len(data):
                raise InvalidBSON("a value is longer than its document")
            yield key, kind, data[begin:place]
    except (IndexError, ValueError, struct.error) as error:
        # The server has checked what it stores; a cursor may come from anybody.
        raise InvalidBSON(str(error)) from None


def _size(kind: int, data: bytes, place: int) -> int:
    if kind in _SIZES:
        return _SIZES[kind]
    if kind == _REGEX:  # two texts, each ends with a zero
        return data.index(0, data.index(0, place) + 1) + 1 - place
    [length] = _LENGTH.unpack_from(data, place)
    if kind in (_DOCUMENT, _ARRAY, _SCOPED_CODE):
        return int(length)
    more = {_BINARY: 1, _POINTER: 12}.get(kind, 0)  # the subtype; an id
    return _LENGTH.size + int(length) + more


def _value(kind: int, data: bytes, options: CodecOptions[Document]) -> Any:
    element = bytes([kind]) + b"\0" + data
    try:
        return bson.decode(_LENGTH.pack(_LENGTH.size + len(element) + 1) + element + b"\0", options)[""]
    except InvalidBSON:
        if kind not in (_DOCUMENT, _ARRAY):
            return _refused(kind, data)
    if kind == _DOCUMENT:
        return _by_key(data, options)
    return [_value(inner, value, options) for _, inner, value in _elements(data, options)]


def _refused(kind: int, data: bytes) -> Binary:
    """The bytes of a value that the driver refuses; those of the subtypes 3 and 4 are all that there is."""
    if kind != _BINARY:
        return Binary(data, USER_DEFINED_SUBTYPE)
    subtype, content = data[_LENGTH.size], data[_LENGTH.size + 1 :]
    # The driver would add a length to a binary of this subtype, and so store another one.
    return Binary(content, USER_DEFINED_SUBTYPE if subtype == _OLD_BINARY_SUBTYPE else subtype)
