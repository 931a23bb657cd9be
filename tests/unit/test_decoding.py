"""Documents that the driver refuses to decode: they are left out, and we store none."""

from __future__ import annotations

import logging
import re
import struct
from pathlib import Path
from typing import Any

import bson
import pytest
from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.datetime_ms import DatetimeMS
from bson.errors import InvalidBSON
from bson.raw_bson import RawBSONDocument

import monque
from monque import PayloadError
from monque._store import decoding
from monque._store.document import CODEC_OPTIONS
from monque._workers.payload import encode
from support.clocks import ago

BAD: list[Binary] = [Binary(b"abc", 3), Binary(b"abc", 4), Binary(b"", 4), Binary(b"x" * 17, 4)]
IDS: list[Any] = [
    *(
        1.5,
        "täxt",
        "",
        {},
        {"a": {"b": [1]}},
        b"x",
        Binary(b"x", 128),
        Binary(b"x" * 16, 4),
        ObjectId("6" * 24),
    ),
    *(True, None, ago(days=1).replace(microsecond=0), DBRef("a", 1), Code("x"), Code("x", {"a": 1}), 7),
    *(Int64(2**40), Timestamp(1, 2), Decimal128("1.5"), MinKey(), MaxKey(), DatetimeMS(2**62)),
]

# A binary of the subtype 2 whose first four bytes say another length than it has.
OLD = struct.pack("<i", 6) + b"\x02" + struct.pack("<i", 9) + b"ab"


def with_old(document: dict[str, Any]) -> bytes:
    """The document as BSON, with such a binary in the place of `PLACE`."""
    return bson.encode(document).replace(bson.encode({"": b"PLACE!"})[6:-1], OLD)


@pytest.fixture(autouse=True)
def nothing_reported(caplog: pytest.LogCaptureFixture) -> None:
    decoding.report.cache_clear()
    caplog.set_level(logging.ERROR, "monque")


def ids_reported(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [vars(record)["job_id"] for record in caplog.records if "does not decode" in record.msg]


@pytest.mark.parametrize("_id", IDS, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("bad", BAD, ids=repr)
def test_a_document_that_the_driver_refuses_is_reported_once_by_its_id(
    bad: Binary, _id: Any, caplog: pytest.LogCaptureFixture
) -> None:
    document = RawBSONDocument(bson.encode({"_id": _id, "a": 1, "deep": [1, {"bad": [bad]}]}))

    assert decoding.decoded(document, CODEC_OPTIONS) is None
    assert decoding.decoded(document, CODEC_OPTIONS) is None
    [shown] = ids_reported(caplog)
    exact = bson.decode(bson.encode({"_id": _id}), decoding.EXACT_CODEC_OPTIONS)["_id"]
    assert shown == str(exact)[:200]


@pytest.mark.parametrize("bad", BAD, ids=repr)
def test_an_id_that_the_driver_refuses_is_shown_as_its_bytes(
    bad: Binary, caplog: pytest.LogCaptureFixture
) -> None:
    assert decoding.decoded(RawBSONDocument(bson.encode({"_id": bad})), CODEC_OPTIONS) is None
    assert [str(bytes(bad))[2:-1] in shown for shown in ids_reported(caplog)] == [True]


@pytest.mark.parametrize(
    "document", [{"_id": 7, "x": b"PLACE!"}, {"_id": 7, "x": Code("f", {"a": b"PLACE!"})}]
)
def test_an_old_binary_with_a_wrong_length_is_refused(
    document: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    data = with_old(document)
    with pytest.raises(InvalidBSON):
        bson.decode(data, CODEC_OPTIONS)

    assert decoding.decoded(RawBSONDocument(data), CODEC_OPTIONS) is None
    assert ids_reported(caplog) == ["7"]


@pytest.mark.parametrize("_id", IDS, ids=lambda each: type(each).__name__)
def test_any_other_document_is_decoded_as_ever(_id: Any, caplog: pytest.LogCaptureFixture) -> None:
    data = bson.encode({"_id": _id, "values": IDS, "pattern": Regex("a", "i")})

    assert decoding.decoded(RawBSONDocument(data), CODEC_OPTIONS) == bson.decode(data, CODEC_OPTIONS)
    assert ids_reported(caplog) == []


@pytest.mark.parametrize("bad", BAD, ids=repr)
@pytest.mark.parametrize("what", ["payload", "result"])
def test_we_store_nothing_that_the_driver_would_not_read_back(bad: Binary, what: Any) -> None:
    with pytest.raises(PayloadError, match=r"a\[0\].*UUIDs"):
        encode({"a": [bad]}, job_name="work", what=what)

    assert encode(Binary(b"x" * 16, 4), job_name="work") == Binary(b"x" * 16, 4)


def test_every_read_of_the_store_goes_through_the_module_that_reads_anything() -> None:
    """A plain `find` would fail as a whole for one document. These few see to it themselves."""
    reads = re.compile(r"(?<!decoding)(?<!bulk)\.(find|find_one|find_one_and_\w+|aggregate|watch)\(")
    own = {"decoding.py", "hints.py"}
    knowing = {
        "_store/settle.py": 1,
        "_store/refused.py": 1,
        "_store/pauses.py": 1,
        "_store/unique.py": 1,
        "_ops/bulk.py": 1,
        "_ops/lists.py": 4,
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
