"""Messages between an instance and its child processes, in both directions as BSON.

A BSON document begins with its length, so the documents follow each other on a socket without a frame.

Errors cross as type, text and trace; the exception itself is pickled beside them where that works, so that
`retry_on` can ask for its class. These bytes come from a child that this process has started, never from the
database.
"""

from __future__ import annotations

import io
import logging
import pickle
import struct
from collections.abc import Mapping
from typing import Any

import bson

from monque._store.document import NAIVE_CODEC_OPTIONS, Claim, Document, made_aware
from monque._values.errors import RemoteError
from monque._values.history import set_remote_trace, trace_of
from monque._values.words import text_of
from monque._workers.address import MAIN, MAIN_OF_CHILD
from monque._workers.results import Kept

# An exception with more bytes than this crosses without being pickled: errors of HTTP clients that carry an
# answer fit, and none keeps the event loop busy.
_LARGEST_PICKLE = 256 * 1024

# How many causes of causes cross: the cause of a verdict may stand behind a wrapper or two.
_MOST_CAUSES = 6

HEAD = struct.Struct("<i")
"""The length at the beginning of a document."""


def encode(message: Mapping[str, Any]) -> bytes:
    """A message as bytes."""
    return bson.encode(message, codec_options=NAIVE_CODEC_OPTIONS)


def decode(data: bytes) -> Document:
    """The message in these bytes."""
    return bson.decode(data, NAIVE_CODEC_OPTIONS)


def claim_of(message: Document) -> Claim:
    """The claim in an order, as the instance has it."""
    return Claim(message["job"])


def pack_result(kept: Kept | None) -> Document | None:
    """The part of a result that is stored, on its way to the instance."""
    return None if kept is None else {"value": kept.value, "size": kept.size, "error": kept.error}


def unpack_result(packed: Document | None) -> Kept | None:
    """As it was packed."""
    return None if packed is None else Kept(made_aware(packed["value"]), packed["size"], packed["error"])


def pack_error(error: BaseException, causes: int = _MOST_CAUSES) -> Document:
    """An exception on its way to the instance."""
    cause = error.__cause__ if causes else None
    cls = type(error)
    return {
        "type": cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}",
        "text": text_of(error),
        "trace": trace_of(error),
        "pickled": _pickled(error),
        "cause": None if cause is None else pack_error(cause, causes - 1),
    }


def unpack_error(packed: Document) -> BaseException:
    """The exception, or a `RemoteError` in its place; either knows where it was raised."""
    error = _unpickled(packed["pickled"])
    if error is None:
        error = RemoteError(type_name=packed["type"], text=packed["text"], trace=packed["trace"])
    if packed["cause"] is not None:
        error.__cause__ = unpack_error(packed["cause"])
    if packed["trace"] is not None:
        set_remote_trace(error, packed["trace"])
    return error


def _pickled(error: BaseException) -> bytes | None:
    """The bytes of an exception that can be rebuilt from them; many with arguments of their own cannot."""
    try:
        data = pickle.dumps(error)
        twin = pickle.loads(data)  # noqa: S301 - our own bytes
    except BaseException:  # noqa: BLE001 - it runs the methods of foreign classes, which may raise anything
        return None
    return data if type(twin) is type(error) and len(data) <= _LARGEST_PICKLE else None


def _unpickled(data: bytes | None) -> BaseException | None:
    if data is None:
        return None
    try:
        error = _Unpickler(io.BytesIO(data)).load()
    except BaseException:  # noqa: BLE001 - as above; its class may not exist in this process
        return None
    return error if isinstance(error, BaseException) else None


class _Unpickler(pickle.Unpickler):
    """Finds the classes of the main file, which has another name in a child."""

    def find_class(self, module: str, name: str) -> Any:
        return super().find_class(MAIN if module == MAIN_OF_CHILD else module, name)


# The fields of a record that are its own; the others came with `extra=`.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_CARRIED = ("name", "levelno", "levelname", "pathname", "filename", "module", "lineno", "funcName", "created")
_PLAIN = (str, int, float, bool, type(None))


def pack_record(record: logging.LogRecord, formatter: logging.Formatter) -> Document:
    """A log record on its way to the instance: its text is final, and so is the text of its error."""
    packed: Document = {field: getattr(record, field) for field in _CARRIED}
    packed |= {"process": record.process, "threadName": record.threadName, "msg": record.getMessage()}
    if record.exc_info and not record.exc_text:
        record.exc_text = formatter.formatException(record.exc_info)
    packed |= {"exc_text": record.exc_text, "stack_info": record.stack_info}
    extra = {name: value for name, value in vars(record).items() if name not in _OWN}
    return packed | {name: value for name, value in extra.items() if isinstance(value, _PLAIN)}


def unpack_record(packed: Document) -> logging.LogRecord:
    """As it was packed."""
    return logging.makeLogRecord({**packed, "args": None, "exc_info": None})
