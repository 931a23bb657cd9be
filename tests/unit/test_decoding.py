"""Documents that the driver refuses to decode, decoded value by value."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import bson
import pytest
from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.errors import InvalidBSON

import monque
from monque._store.decoding import decode
from monque._store.document import CODEC_OPTIONS, NAIVE_CODEC_OPTIONS
from support.clocks import ago

VALUES: list[Any] = [
    *(1.5, "täxt", {"a": {"b": [1]}}, [1, {"a": []}], b"x", ObjectId(), True, None, Regex("a", "i")),
    *(ago(days=1).replace(microsecond=0), DBRef("a", 1), Code("x"), Code("x", {"a": 1}), 7, Int64(2**40)),
    *(Timestamp(1, 2), Decimal128("1.5"), MinKey(), MaxKey(), Binary(b"x", 128), Binary(b"x" * 16, 4)),
]
EVERY_TYPE = {"": "no key", **{str(number): value for number, value in enumerate(VALUES)}}
BAD: list[Binary] = [Binary(b"abc", 3), Binary(b"abc", 4), Binary(b"", 4), Binary(b"x" * 17, 4)]


@pytest.mark.parametrize("bad", BAD, ids=repr)
@pytest.mark.parametrize("options", [CODEC_OPTIONS, NAIVE_CODEC_OPTIONS], ids=["aware", "naive"])
def test_a_value_that_the_driver_refuses_is_what_is_stored_and_all_others_are_as_ever(
    bad: Binary, options: Any
) -> None:
    data = bson.encode({"bad": bad, **EVERY_TYPE, "deep": [1, {"bad": [bad], **EVERY_TYPE}]})
    others = bson.decode(bson.encode(EVERY_TYPE), options)

    assert decode(data, options) == {"bad": bad, **others, "deep": [1, {"bad": [bad], **others}]}
    assert bson.encode(decode(data, options)) == data


# A binary of the subtype 2 whose first four bytes say another length than it has.
OLD = struct.pack("<i", 6) + b"\x02" + struct.pack("<i", 9) + b"ab"


def with_old(document: dict[str, Any]) -> bytes:
    """The document as BSON, with such a binary in the place of `PLACE`."""
    return bson.encode(document).replace(bson.encode({"": b"PLACE!"})[6:-1], OLD)


def test_an_old_binary_with_a_wrong_length_is_shown_as_its_bytes() -> None:
    data = with_old({"x": b"PLACE!", "y": [b"PLACE!", 7]})
    shown = Binary(struct.pack("<i", 9) + b"ab", 128)
    with pytest.raises(InvalidBSON):
        bson.decode(data, CODEC_OPTIONS)

    assert decode(data, CODEC_OPTIONS) == {"x": shown, "y": [shown, 7]}


def test_code_with_a_scope_that_the_driver_refuses_is_shown_as_its_bytes() -> None:
    [shown] = decode(with_old({"x": Code("f", {"a": b"PLACE!"})}), CODEC_OPTIONS).values()

    assert type(shown) is Binary
    assert OLD in shown


def test_what_is_no_document_is_still_refused() -> None:
    """A cursor comes from outside: its bytes may be anything, and must not end in a loop or a crash."""
    good = bson.encode({"bad": Binary(b"abc", 4), "text": "abc", "more": {"a": [1, "x"]}})
    for place in range(len(good)):
        for byte in (0, 1, 2, 3, 4, 5, 11, 12, 15, 127, 128, 255):
            try:
                decode(good[:place] + bytes([byte]) + good[place + 1 :], CODEC_OPTIONS)
            except InvalidBSON:
                continue
    for length in range(len(good)):
        with pytest.raises(InvalidBSON):
            decode(good[:length], CODEC_OPTIONS)


def test_every_read_of_the_store_goes_through_the_module_that_reads_anything() -> None:
    """A plain `find` would fail as a whole for one document. These few see to it themselves."""
    reads = re.compile(r"(?<!decoding)(?<!bulk)\.(find|find_one|find_one_and_\w+|aggregate|watch)\(")
    own = {"decoding.py", "hints.py"}
    knowing = {
        "_store/settle.py": 1,
        "_store/refused.py": 1,
        "_store/insert.py": 1,
        "_store/pauses.py": 1,
        "_ops/bulk.py": 3,
        "_ops/trends.py": 1,
    }
    package = Path(monque.__file__).parent
    modules = [path for part in ("_store", "_ops") for path in (package / part).rglob("*.py")]
    found = {
        path.relative_to(package).as_posix(): len(reads.findall(path.read_text()))
        for path in modules
        if path.name not in own
    }

    assert {name: count for name, count in found.items() if count} == knowing
