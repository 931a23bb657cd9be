"""Reads documents of which the driver refuses to decode some: one of them must not hide the others.

The server stores a binary of the subtypes 2, 3 and 4 with any length. PyMongo decodes only those with the
right one, and one wrong value fails the whole answer with `InvalidBSON`. So every read of `_store` goes
through this module: on that error it reads again without decoding, and leaves out what cannot be decoded.
Each such document is reported once. Any other read costs nothing more.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar, cast

import bson
from bson.codec_options import CodecOptions
from bson.errors import InvalidBSON
from bson.raw_bson import RawBSONDocument
from pymongo import ReturnDocument
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import PyMongoError

from monque._connect.deadlines import limited
from monque._store.document import EXACT_CODEC_OPTIONS, Document

logger = logging.getLogger("monque")

D = TypeVar("D", bound=Mapping[str, Any])

RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)
"""Leaves documents as bytes."""


class UnreadableError(PyMongoError):
    """The driver does not decode the one document that was asked for."""

    def __init__(self, why: InvalidBSON) -> None:
        super().__init__(f"PyMongo does not decode a document that it was given: {why}")


async def find(
    collection: AsyncCollection[D],
    query: Document,
    fields: Document | None = None,
    *,
    left_out: list[Any] | None = None,
    **how: Any,
) -> list[D]:
    """All documents that match and can be decoded; *left_out* gets the ids of the others."""
    try:
        return await collection.find(query, fields, **how).to_list()
    except InvalidBSON:
        found = await _raw(collection).find(query, fields, **how).to_list()
        return _readable(collection, found, left_out)


async def pages(
    collection: AsyncCollection[D], query: Document, fields: Document, *, size: int, **how: Any
) -> AsyncGenerator[list[D], None]:
    """The same in parts, one cursor long: each document once, whatever becomes of it meanwhile.

    The time limit counts for each part.
    """
    async with _raw(collection).find(query, fields, batch_size=size, **how) as found:
        while True:
            with limited():
                page = await found.to_list(size)
            if not page:
                return
            yield _readable(collection, page)


async def find_one(
    collection: AsyncCollection[D], query: Document, fields: Document | None = None, **how: Any
) -> D | None:
    """One document that matches.

    Raises:
        UnreadableError: It cannot be decoded.
    """
    try:
        return await collection.find_one(query, fields, **how)
    except InvalidBSON as error:
        raise UnreadableError(error) from error


async def is_there_any(
    collection: AsyncCollection[Any], query: Document, *, fields: Document | None = None, **how: Any
) -> bool:
    """Return whether a document matches, whatever it holds; an index with these *fields* tells alone."""
    try:
        return await collection.find_one(query, fields or {"_id": 1}, **how) is not None
    except InvalidBSON:
        return True


async def aggregate(collection: AsyncCollection[D], stages: Sequence[Document], **how: Any) -> list[D]:
    """The documents that a pipeline yields, as far as they can be decoded."""
    try:
        return await (await collection.aggregate(stages, **how)).to_list()
    except InvalidBSON:
        return _readable(collection, await (await _raw(collection).aggregate(stages, **how)).to_list())


async def find_one_and_update(
    collection: AsyncCollection[D],
    query: Document,
    update: Document | list[Document],
    *,
    upsert: bool = False,
    session: AsyncClientSession | None = None,
    before: Document | None = None,
    after: Document | None = None,
) -> D | None:
    """Change one document, and return it as it is since, or these fields of it, *before* or *after*.

    Raises:
        UnreadableError: It is changed and cannot be decoded; or a unique index refused that, and the refusal
            names what cannot be decoded.
    """
    returned = ReturnDocument.AFTER if before is None else ReturnDocument.BEFORE
    how: dict[str, Any] = {"return_document": returned, "projection": before or after, "session": session}
    try:
        return await collection.find_one_and_update(query, update, upsert=upsert, **how)
    except InvalidBSON as error:
        raise UnreadableError(error) from error


def decoded(document: RawBSONDocument, options: CodecOptions[Document]) -> Document | None:
    """Decode a document; None if the driver refuses to, which is reported."""
    try:
        return bson.decode(document.raw, options)
    except InvalidBSON:
        report(_first_value(bytes(document.raw)))
        return None


def _raw(collection: AsyncCollection[Any]) -> AsyncCollection[RawBSONDocument]:
    return collection.with_options(codec_options=RAW)


def _readable(
    collection: AsyncCollection[D], found: Iterable[RawBSONDocument], left_out: list[Any] | None = None
) -> list[D]:
    readable = []
    for document in found:
        if (read := decoded(document, cast("CodecOptions[Document]", collection.codec_options))) is not None:
            readable.append(cast("D", read))
        elif left_out is not None:
            left_out.append(_id_in(_first_value(bytes(document.raw))))
    return readable


@lru_cache(maxsize=1_000)  # each is reported once, although it is met again and again
def report(first: bytes) -> None:
    """Log that a job cannot be decoded; *first* is the element of its `_id`."""
    shown = str(_id_in(first))[:_LONGEST_ID]
    message = "PyMongo does not decode job %s: it does not run, and is left out of lists"
    logger.error(message, shown, extra={"job_id": shown})


# How much of an odd `_id` a log line shows.
_LONGEST_ID = 200

_LENGTH = struct.Struct("<i")
# Bytes of the values that may be an `_id`, by type: of all of them, and beside the length at the beginning.
_FIXED = {0x01: 8, 0x07: 12, 0x08: 1, 0x09: 8, 0x0A: 0, 0x10: 4, 0x11: 8, 0x12: 8, 0x13: 16, 0x7F: 0, 0xFF: 0}
_BESIDE_LENGTH = {0x02: 4, 0x05: 5, 0x0D: 4, 0x0E: 4}


def _first_value(data: bytes) -> bytes:
    """The first element of a document, which is the `_id` of a stored one."""
    kind, begin = data[_LENGTH.size], data.index(0, _LENGTH.size + 1) + 1
    if (size := _FIXED.get(kind)) is None:
        size = _LENGTH.unpack_from(data, begin)[0] + _BESIDE_LENGTH.get(kind, 0)
    return data[_LENGTH.size : begin + size]


def _id_in(first: bytes) -> Any:
    """The `_id` in the first element of a document; the bytes if it is none, or the driver refuses it."""
    try:
        return bson.decode(_LENGTH.pack(len(first) + 5) + first + b"\0", EXACT_CODEC_OPTIONS)["_id"]
    except (InvalidBSON, KeyError):
        return first
