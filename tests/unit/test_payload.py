from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import types
from collections import ChainMap, OrderedDict, UserDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, IntFlag, StrEnum
from ipaddress import IPv4Address, IPv6Interface
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Generic, NamedTuple, TypedDict, TypeVar
from uuid import UUID

import bson
import pydantic
import pytest
import typing_extensions
from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, HttpUrl, RootModel, SecretStr, TypeAdapter, computed_field

from monque._values.errors import ConfigurationError, PayloadError
from monque._values.job import Job
from monque._workers import payload
from monque._workers.payload import Codec
from monque._workers.signature import payload_type

T = TypeVar("T")


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Size(IntEnum):
    S = 1
    XL = 4


class Mood(StrEnum):
    GOOD = "good"


class OldMood(str, Enum):  # noqa: UP042 - people still write this
    BAD = "bad"


class Rights(IntFlag):
    READ = 1
    WRITE = 2


@dataclass
class Email:
    to: str
    subject: str


class Point(NamedTuple):
    x: int
    y: int


class Tags(TypedDict):
    name: str


class ExtendedTags(typing_extensions.TypedDict):
    name: str


class Model(BaseModel):
    price: Decimal
    day: date = Field(alias="onDay")
    color: Color = Color.RED


@pydantic.dataclasses.dataclass
class PydanticEmail:
    to: str
    at: Annotated[date, Field(alias="onDay")]


def encode(data: Any) -> Any:
    return payload.encode(data, job_name="test")


def stored(data: Any) -> Any:
    """What the database gives back for *data*, which has been encoded."""
    return bson.decode(bson.encode({"data": data}), CodecOptions(tz_aware=True))["data"]


def refusal(data: Any) -> str:
    with pytest.raises(PayloadError) as caught:
        encode(data)
    assert caught.value.job_name == "test"
    return str(caught.value)


# What can be stored


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (None, None),
        (True, True),
        (7, 7),
        (-(2**63), -(2**63)),
        (2**63 - 1, 2**63 - 1),
        (1.5, 1.5),
        ("ü\0x", "ü\0x"),
        (b"\0\xff", b"\0\xff"),
        (bytearray(b"x"), b"x"),
        ({}, {}),
        ({"a": {"b": [1, {"c": None}]}}, {"a": {"b": [1, {"c": None}]}}),
        (OrderedDict(a=1), {"a": 1}),
        (UserDict(a=1), {"a": 1}),
        (ChainMap({"a": 1}), {"a": 1}),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        ((1, (2,)), [1, [2]]),
        (Point(1, 2), [1, 2]),
        (deque([1, 2]), [1, 2]),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset({"b", "a"}), ["a", "b"]),
        ({1, None, "x"}, ["x", 1, None]),
        ({Color.RED: 1}, {"red": 1}),
        (Color.BLUE, "blue"),
        (Size.XL, 4),
        (Mood.GOOD, "good"),
        (OldMood.BAD, "bad"),
        (Rights.READ | Rights.WRITE, 3),
        (UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (Decimal("1.10"), "1.10"),
        (date(2026, 1, 2), "2026-01-02"),
        (time(1, 2, 3, 4), "01:02:03.000004"),
        (time(1, tzinfo=UTC), "01:00:00+00:00"),
        (timedelta(days=1, seconds=2, milliseconds=500), "P1DT2.500000S"),
        (-timedelta(hours=1), "-P0DT3600.000000S"),
        (Path("a/b"), "a/b"),
        (PurePosixPath("/c"), "/c"),
        (IPv4Address("10.0.0.1"), "10.0.0.1"),
        (IPv6Interface("::1/64"), "::1/64"),
        (Email("a", "b"), {"to": "a", "subject": "b"}),
        ([Email("a", "b")], [{"to": "a", "subject": "b"}]),
        (PydanticEmail(to="a", onDay=date(2026, 1, 2)), {"to": "a", "onDay": "2026-01-02"}),
        (
            Model(price=Decimal("1.0"), onDay=date(2026, 1, 2)),
            {"price": "1.0", "onDay": "2026-01-02", "color": "red"},
        ),
        (RootModel[list[Color]]([Color.RED]), ["red"]),
        (TypeAdapter(HttpUrl).validate_python("https://example.org/a"), "https://example.org/a"),
        ({1: "a", 2.5: "b", Size.S: "c"}, {"1": "c", "2.5": "b"}),
        ({UUID(int=5): 1, date(2026, 1, 2): 2}, {str(UUID(int=5)): 1, "2026-01-02": 2}),
        ({"$set": 1, "a.b": 2, "": 3, "ü": 4}, {"$set": 1, "a.b": 2, "": 3, "ü": 4}),
    ],
)
def test_a_value_is_stored_in_a_form_bson_has(data, expected):
    encoded = encode(data)

    assert encoded == expected
    assert type(encoded) is type(expected)
    assert stored(encoded) == expected


@pytest.mark.parametrize(
    "value",
    [
        ObjectId(),
        Decimal128("1.5"),
        Binary(b"x", 128),
        Int64(5),
        Timestamp(1, 2),
        Regex("a.*", "i"),
        re.compile("a"),
        Code("return 1"),
        DBRef("users", 1),
        MinKey(),
        MaxKey(),
    ],
)
def test_values_of_bson_itself_pass_untouched(value):
    assert encode({"value": value})["value"] is value


def test_a_raw_document_is_stored_as_the_document_it_holds():
    assert encode(RawBSONDocument(bson.encode({"a": {"b": 1}}))) == {"a": {"b": 1}}


def test_a_datetime_is_kept_as_the_same_instant_in_milliseconds():
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_900, tzinfo=timezone(timedelta(hours=5)))

    assert stored(encode(moment)) == moment.replace(microsecond=678_000)


def test_subclasses_of_plain_types_become_plain():
    class Text(str):
        __slots__ = ()

        def __str__(self) -> str:
            return "something else"

    class Number(float):
        pass

    encoded = encode({Text("key"): Text("text"), "number": Number(1.5), "truth": Int64(1)})

    assert encoded == {"key": "text", "number": 1.5, "truth": 1}
    assert [type(part) for part in (*encoded, encoded["key"], encoded["number"])] == [
        str,
        str,
        str,
        str,
        float,
    ]


def test_the_data_given_is_not_touched_and_not_shared():
    data = {"list": [1], "dict": {"a": 1}}

    encoded = encode(data)
    encoded["list"].append(2)
    encoded["dict"]["b"] = 2

    assert data == {"list": [1], "dict": {"a": 1}}


def test_a_set_is_the_same_payload_in_every_process():
    program = (
        "from monque._workers.payload import encode\n"
        "print(encode([{'a', 'b', 'c', 'd'}, {1, 'x', None}, {(1, 2), (0, 9)}], job_name='test'))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in "123"
    }

    assert len(outputs) == 1


def test_computed_fields_are_left_out_so_that_a_forbidding_model_reads_itself():
    class Order(BaseModel):
        model_config = ConfigDict(extra="forbid")
        count: int

        @computed_field
        @property
        def double(self) -> int:
            return 2 * self.count

    codec = Codec.of(Order)

    assert codec.encode(Order(count=2), job_name="test") == {"count": 2}


def test_pydantic_is_not_imported_for_plain_data():
    program = (
        "import sys; from dataclasses import dataclass; from monque._workers.payload import Codec, encode\n"
        "@dataclass\nclass A: x: int\n"
        "codec = Codec.of(dict); codec.decode(codec.encode([A(1)], job_name='a'), job_name='a')\n"
        "sys.exit('pydantic' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


# What cannot


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"at": datetime(2026, 1, 2)}, ["data.at", "naive", "2026-01-02", "time zone"]),  # noqa: DTZ001
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=1))), ["data ", "years 1 to 9999"]),
        ({"items": [0, 1, 2, {"price": 2**63}]}, ["data.items[3].price", "64 bits"]),
        ({"n": -(2**63) - 1}, ["data.n", "64 bits"]),
        ({"f": encode}, ["data.f", "function"]),
        (object(), ["data ", "object", "dataclasses"]),
        ([1j], ["data[0]", "complex"]),
        ((n for n in [1]), ["data ", "generator"]),
        ({"k": Email}, ["data.k", "type"]),
        ({"s": SecretStr("geheim")}, ["data.s", "SecretStr"]),
        ({"m": memoryview(b"x")}, ["data.m", "memoryview"]),
        ({"with space": {"a-b": object()}}, ["data['with space']['a-b']"]),
        ({"a\0b": 1}, ["NUL", r"data['a\x00b']"]),
        ({"a": {(1, 2): 3}}, ["data.a[(1, 2)]", "key of type tuple"]),
        ({None: 1}, ["data[None]", "key of type NoneType"]),
        ({b"x": 1}, ["key of type bytes"]),
        ({object: 1}, ["data["]),
        ({1: "a", "1": "b"}, ["data ", "same text"]),
        ({"t": "a\ud800"}, ["data.t", "Unicode", r"\ud800"]),
        ({"\udfff": 1}, ["data[", "Unicode"]),
        (Email("a", object()), ["data.subject"]),
        ([{1, 2**64}], ["data[0][", "64 bits"]),
    ],
)
def test_what_bson_cannot_hold_is_refused_with_its_place(data, words):
    message = refusal(data)

    assert [word for word in ["'test'", *words] if word not in message] == []


def nest(levels: int, wrap: Callable[[Any], Any]) -> Any:
    return functools.reduce(lambda inside, _: wrap(inside), range(levels), 1)


@pytest.mark.parametrize("wrap", [lambda x: {"a": x}, lambda x: [x], lambda x: (x,), lambda x: Email("a", x)])
def test_ninety_levels_are_stored_and_more_are_refused(wrap):
    stored(encode(nest(90, wrap)))

    assert "90 levels" in refusal(nest(91, wrap))
    assert "90 levels" in refusal(nest(100_000 if wrap(1) == [1] else 500, wrap))


def test_what_contains_itself_is_refused():
    class Node(BaseModel):
        next: Node | None = None

    a_list: list[Any] = []
    a_list.append(a_list)
    a_dict: dict[str, Any] = {}
    a_dict["self"] = [a_dict]
    a_model = Node()
    a_model.next = a_model

    assert "contains itself" in refusal(a_list)
    assert len(refusal(a_list)) < 200
    assert "contains itself" in refusal(a_dict)
    assert "ircular" in refusal(a_model)


# Codecs


@pytest.mark.parametrize(
    "annotation",
    [Any, None, type(None), object, dict, dict[str, Any], Tags, ExtendedTags],
)
def test_dicts_and_untyped_data_pass_through(annotation):
    codec = Codec.of(annotation)
    raw = {"name": 1, "extra": [ObjectId()]}

    assert codec.decode(raw, job_name="test") is raw
    assert codec.encode({"a": Decimal(1)}, job_name="test") == {"a": "1"}


class Everything(BaseModel):
    """pydantic's side of `Parcel`."""

    url: HttpUrl = Field("https://example.org", validate_default=True)
    address: IPv4Address = IPv4Address("10.0.0.1")
    parcels: list[Parcel] = []


@dataclass
class Inner:
    point: Point
    tags: frozenset[str]
    note: str | None = None


@dataclass
class Parcel:
    id: UUID
    price: Decimal
    day: date
    clock: time
    wait: timedelta
    color: Color
    size: Size
    mood: OldMood
    rights: Rights
    path: Path
    raw: bytes
    ratio: float
    count: int
    at: datetime
    numbers: set[int]
    pair: tuple[int, Decimal]
    inner: Inner
    maybe: Inner | None
    many: list[Inner] = field(default_factory=list)
    by_number: dict[int, Decimal] = field(default_factory=dict)
    by_id: dict[UUID, timedelta] = field(default_factory=dict)
    by_day: dict[date, Color] = field(default_factory=dict)
    by_color: dict[Color, int] = field(default_factory=dict)
    by_size: dict[Size, bool] = field(default_factory=dict)
    by_truth: dict[bool, float] = field(default_factory=dict)


def to_milliseconds(moment: datetime) -> datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


texts = st.text(st.characters(codec="utf-8"))
ints = st.integers(-(2**63), 2**63 - 1)
decimals = st.decimals(allow_nan=False, allow_infinity=False)
instants = st.datetimes(timezones=st.just(UTC)).map(to_milliseconds)
clocks = st.times() | st.times(timezones=st.just(UTC))
paths = st.lists(st.text("abc.", min_size=1)).map(lambda parts: Path(*parts))
points = st.builds(Point, ints, ints)
inners = st.builds(Inner, point=points, tags=st.frozensets(texts), note=st.none() | texts)
parcels = st.builds(
    Parcel,
    id=st.uuids(),
    price=decimals,
    day=st.dates(),
    clock=clocks,
    wait=st.timedeltas(),
    color=st.sampled_from(Color),
    size=st.sampled_from(Size),
    mood=st.sampled_from(OldMood),
    rights=st.sampled_from([Rights.READ, Rights.WRITE]),
    path=paths,
    raw=st.binary(),
    ratio=st.floats(allow_nan=False),
    count=ints,
    at=instants,
    numbers=st.sets(ints),
    pair=st.tuples(ints, decimals),
    inner=inners,
    maybe=st.none() | inners,
    many=st.lists(inners, max_size=3),
    by_number=st.dictionaries(ints, decimals, max_size=3),
    by_id=st.dictionaries(st.uuids(), st.timedeltas(), max_size=3),
    by_day=st.dictionaries(st.dates(), st.sampled_from(Color), max_size=3),
    by_color=st.dictionaries(st.sampled_from(Color), ints),
    by_size=st.dictionaries(st.sampled_from(Size), st.booleans()),
    by_truth=st.dictionaries(st.booleans(), st.floats(allow_nan=False)),
)


def round_trip(codec: Codec[T], value: T) -> T:
    return codec.decode(stored(codec.encode(value, job_name="test")), job_name="test")


@given(parcels)
def test_a_dataclass_comes_back_as_it_was(parcel):
    assert round_trip(Codec.of(Parcel), parcel) == parcel


@given(st.builds(Everything, parcels=st.lists(parcels, max_size=2)))
def test_a_model_comes_back_as_it_was(model):
    assert round_trip(Codec.of(Everything), model) == model


@pytest.mark.parametrize(
    ("annotation", "values"),
    [
        (int, ints),
        (str, texts),
        (bool, st.booleans()),
        (bytes, st.binary()),
        (Decimal, decimals),
        (UUID, st.uuids()),
        (date, st.dates()),
        (time, clocks),
        (timedelta, st.timedeltas()),
        (datetime, instants),
        (Color, st.sampled_from(Color)),
        (Size, st.sampled_from(Size)),
        (Path, paths),
        (Point, points),
        (int | None, st.none() | ints),
        (list[Inner], st.lists(inners)),
        (Inner | Point, inners | points),
        (set[Decimal], st.sets(decimals)),
        (frozenset[UUID], st.frozensets(st.uuids())),
        (deque[date], st.lists(st.dates()).map(deque)),
        (tuple[int, ...], st.lists(ints).map(tuple)),
        (dict[str, timedelta], st.dictionaries(texts.filter(lambda key: "\0" not in key), st.timedeltas())),
        (dict[int, list[Inner]], st.dictionaries(ints, st.lists(inners, max_size=2), max_size=3)),
    ],
)
def test_a_value_comes_back_as_it_was(annotation, values):
    codec = Codec.of(annotation)

    @given(values)
    def check(value: Any) -> None:
        result = round_trip(codec, value)
        assert result == value
        assert type(result) is type(value)

    check()


def test_plain_data_fits_a_typed_worker_and_is_converted():
    codec = Codec.of(Parcel)
    raw = encode(
        Parcel(
            id=UUID(int=1),
            price=Decimal("1.50"),
            day=date(2026, 1, 2),
            clock=time(1),
            wait=timedelta(1),
            color=Color.RED,
            size=Size.S,
            mood=OldMood.BAD,
            rights=Rights.READ,
            path=Path("a"),
            raw=b"",
            ratio=0.5,
            count=1,
            at=datetime(2026, 1, 2, tzinfo=UTC),
            numbers={1},
            pair=(1, Decimal(2)),
            inner=Inner(Point(1, 2), frozenset()),
            maybe=None,
        )
    )

    parcel = codec.decode(raw | {"count": "12", "unknown": 1}, job_name="test")

    assert (parcel.count, parcel.color, parcel.inner.point) == (12, Color.RED, Point(1, 2))


def test_a_strict_model_reads_what_bson_made_of_it():
    class Strict(BaseModel):
        model_config = ConfigDict(strict=True)
        id: UUID
        day: date

    order = Strict(id=UUID(int=1), day=date(2026, 1, 2))

    assert round_trip(Codec.of(Strict), order) == order


def test_a_payload_that_does_not_fit_names_field_reason_and_value():
    codec = Codec.of(list[Email])

    with pytest.raises(PayloadError) as caught:
        codec.decode([{"to": 5, "subject": "a"}, {"to": "b"}], job_name="send-email")

    message = str(caught.value)
    assert "'send-email'" in message
    assert "list[Email]" in message
    assert "data[0].to: Input should be a valid string, got 5" in message
    assert "data[1].subject: Field required, got {'to': 'b'}" in message
    assert "http" not in message
    assert caught.value.job_name == "send-email"


def test_many_problems_and_large_values_are_told_in_short():
    with pytest.raises(PayloadError, match="and 97 more") as caught:
        Codec.of(list[int]).decode(["x" * 10_000] * 100, job_name="test")

    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("data", [{"to": "a"}, None, 5, {"to": "a", "subject": None}])
def test_encoding_refuses_what_the_worker_could_not_read(data):
    with pytest.raises(PayloadError, match="does not fit Email"):
        Codec.of(Email).encode(data, job_name="test")


def test_a_model_that_forbids_extra_keys_does_so():
    class Closed(BaseModel):
        model_config = ConfigDict(extra="forbid")
        a: int

    with pytest.raises(PayloadError, match=r"data\.b: Extra inputs"):
        Codec.of(Closed).encode({"a": 1, "b": 2}, job_name="test")


class Arbitrary:
    pass


@dataclass
class Unfinished:
    part: Missing  # noqa: F821


@pytest.mark.parametrize(
    ("annotation", "word"),
    [(Arbitrary, "Arbitrary"), (list[Arbitrary], "Arbitrary"), (Unfinished, "Missing"), (5, "5")],
)
def test_a_type_that_cannot_be_rebuilt_is_refused_at_registration(annotation, word):
    with pytest.raises(ConfigurationError, match=word) as caught:
        Codec.of(annotation)

    assert "dataclass" in str(caught.value)
    assert "http" not in str(caught.value)


def test_local_dataclasses_may_name_each_other():
    @dataclass
    class Line:
        price: Decimal

    @dataclass
    class Order:
        lines: list[Line]

    order = Order([Line(Decimal(1))])

    assert round_trip(Codec.of(Order), order) == order


# The type a handler asks for


async def module_level(job: Job[Email]) -> None: ...


def untyped(job): ...


def bare(job: Job) -> None: ...


def anything(job: Any) -> None: ...


def annotated(job: Annotated[Job[Email], "note"]) -> None: ...


def constrained(job: Job[Annotated[int, Field(gt=0)]]) -> None: ...


def quoted(job: Job["Email"]) -> None: ...  # noqa: UP037 - quotes within quotes


def with_default(job: Job[Email], retries: int = 3, *, loud: bool = False) -> None: ...


def with_others_unknown(job: Job[Email], other: NotThere = None) -> AlsoNotThere: ...  # noqa: F821


def with_context(database: str, job: Job[Email]) -> None: ...


def alias(job: EmailJob) -> None: ...


EmailJob = typing_extensions.TypeAliasType("EmailJob", Job[Email])


class Service:
    def handle(self, job: Job[Email]) -> None: ...

    @classmethod
    def handle_class(cls, job: Job[Email]) -> None: ...

    @staticmethod
    def handle_static(job: Job[Email]) -> None: ...

    async def __call__(self, job: Job[Email]) -> None: ...


def logged(handler: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(handler)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return handler(*args, **kwargs)

    return wrapper


def injecting(handler: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(handler)
    def wrapper(job: Any) -> Any:
        return handler(job, "database")

    return wrapper


@logged
def decorated(job: Job[Email]) -> None: ...


@injecting
def injected(job: Job[Email], database: str) -> None: ...


@injecting
def nothing_left() -> None: ...


def eager(job) -> None: ...


eager.__annotations__["job"] = Job[Email]


@pytest.mark.parametrize(
    "handler",
    [
        module_level,
        annotated,
        quoted,
        with_default,
        with_others_unknown,
        alias,
        Service().handle,
        Service().handle_class,
        Service.handle_static,
        Service(),
        functools.partial(with_context, "db"),
        functools.partial(with_default, retries=1),
        functools.partial(Service().handle),
        decorated,
        logged(Service().handle),
        injected,
        eager,
    ],
)
def test_the_payload_type_is_read_from_the_annotation(handler):
    assert payload_type(handler, Job) is Email


@pytest.mark.parametrize("handler", [untyped, bare, anything, nothing_left, [].append, set().add, print])
def test_without_an_annotation_the_payload_may_be_anything(handler):
    assert payload_type(handler, Job) is Any


def test_constraints_in_the_payload_type_are_kept():
    codec = Codec.of(payload_type(constrained, Job))

    with pytest.raises(PayloadError, match="greater than 0"):
        codec.encode(0, job_name="test")


def test_a_type_local_to_the_function_around_the_handler_is_found():
    @dataclass
    class Local:
        x: int

    def handler(job: Job[Local]) -> None: ...

    def register() -> Any:
        return payload_type(handler, Job)

    assert register() is Local


async def test_a_type_local_to_a_coroutine_is_found():
    @dataclass
    class Local:
        x: int

    async def handler(job: Job[Local]) -> None: ...

    assert payload_type(handler, Job) is Local


def test_a_local_type_the_handler_uses_is_found_in_its_closure():
    def make() -> Callable[..., Any]:
        @dataclass
        class Closed:
            x: int

        def handler(job: Job[Closed]) -> type:
            return Closed

        return handler

    handler = make()

    assert payload_type(handler, Job) is handler(None)


def test_a_handler_that_names_itself_can_be_decorated():
    def handler(job: Job[Email]) -> Any:
        return decorated_later

    found = payload_type(handler, Job)
    decorated_later = handler

    assert found is Email
    assert handler(None) is decorated_later


def test_a_variable_elsewhere_does_not_hide_a_module_level_type():
    Email = Inner  # noqa: N806

    assert payload_type(module_level, Job) is not Email


def nowhere(job: Job[Nowhere]) -> None: ...  # noqa: F821


def wrong_attribute(job: Job[pydantic.Nowhere]) -> None: ...


@pytest.mark.parametrize("handler", [nowhere, wrong_attribute])
def test_an_annotation_that_cannot_be_resolved_is_named(handler):
    with pytest.raises(ConfigurationError, match="Nowhere") as caught:
        payload_type(handler, Job)

    assert handler.__name__ in str(caught.value)


@pytest.mark.parametrize(
    "handler",
    [
        lambda: None,
        lambda a, b: None,
        lambda job, *, needed: None,
        with_context,
        Service.handle,
        5,
        None,
        "name",
    ],
)
def test_what_cannot_be_called_with_the_job_alone_is_no_handler(handler):
    with pytest.raises(ConfigurationError, match="a handler takes one argument, the job"):
        payload_type(handler, Job)


class Envelope(BaseModel, Generic[T]):
    content: T


def test_generic_models_are_rebuilt_with_their_content():
    def handler(job: Job[Envelope[Email]]) -> None: ...

    letter = Envelope[Email](content=Email("a", "b"))

    assert round_trip(Codec.of(payload_type(handler, Job)), letter) == letter


@dataclass
class Order:
    id: ObjectId
    parts: list[ObjectId]
    note: str | None = None


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (ObjectId, ObjectId("0123456789abcdef01234567")),
        (list[ObjectId], [ObjectId("0123456789abcdef01234567")]),
        (Order, Order(ObjectId("0123456789abcdef01234567"), [ObjectId("0123456789abcdef01234568")])),
        (dict[str, Order | None], {"a": Order(ObjectId("0123456789abcdef01234567"), []), "b": None}),
    ],
)
def test_ids_of_mongodb_come_back_as_they_were(annotation, value):
    codec = Codec.of(annotation)
    stored = bson.decode(bson.encode({"data": codec.encode(value, job_name="ship")}))["data"]
    assert codec.decode(stored, job_name="ship") == value


def test_an_id_is_checked_like_any_other_field():
    with pytest.raises(PayloadError, match="id"):
        Codec.of(Order).encode({"id": "no id", "parts": []}, job_name="ship")


def test_an_unknown_class_beside_an_id_is_still_refused():
    @dataclass
    class Mixed:
        id: ObjectId
        other: Arbitrary

    with pytest.raises(ConfigurationError, match="dataclass"):
        Codec.of(Mixed)
