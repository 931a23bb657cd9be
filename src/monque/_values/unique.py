"""`Unique` and `Debounce`: when two calls mean the same job, and what becomes of the second one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias, get_args

from monque._values.errors import ConfigurationError, MonqueError
from monque._values.job import Job
from monque._values.rules import check_duration, check_unique_key

Until: TypeAlias = Literal["done", "start"]
OnConflict: TypeAlias = Literal["keep", "replace", "raise"]

# Behind a key stand a colon and 32 digits, and both must fit into a unique key.
_LONGEST_KEY_WITH_DATA = 1024 - 33


@dataclass(frozen=True, slots=True)
class Unique:
    """When a call means the same job as an earlier one, and what becomes of the call then.

    A key, *data*, or both are needed.

    Attributes:
        key: Calls for the same job name with the same key mean the same job.
        data: True: calls with the same payload do. A list of fields: calls with the same values there, for
            example `["customer_id", "item.sku"]`; a payload that lacks one is a `PayloadError`. With a key,
            both must be the same.
        window: At most one call within this time is accepted, whether its job has ended or not. The others
            are throttled.
        until: How long a job stands for later calls: until it is `done`, or until its `start`. Then a call
            that comes while it runs makes it run once more afterwards, with the newest payload.
        on_conflict: What a call does if its job is there: `keep` that one, `replace` its payload and
            settings (if it runs: run once more afterwards), or `raise` a `DuplicateJobError`.

    Examples:
        >>> await monque.enqueue(report, Month(2026, 11), unique=Unique(data=True, window=timedelta(hours=1)))
        >>> await monque.enqueue(reindex, Shop(7), unique=Unique("shop-7", on_conflict="replace"))
    """

    key: str | None = None
    _: KW_ONLY
    data: bool | Sequence[str] | None = None
    window: timedelta | None = None
    until: Until = "done"
    on_conflict: OnConflict = "keep"

    def __post_init__(self) -> None:
        _check_fields(self.data)
        if isinstance(self.data, Sequence):  # a frozen value must not change with the caller's list
            object.__setattr__(self, "data", tuple(self.data))
        if self.key is None and not self.data:
            raise ConfigurationError(
                "Unique needs a key or data: by the name alone, calls with different payloads would mean the "
                'same job; who wants that gives one key to all, as in Unique("all")'
            )
        if self.key is not None:
            check_unique_key(self.key)
            if self.data and len(self.key.encode("utf-16-le")) // 2 > _LONGEST_KEY_WITH_DATA:
                raise ConfigurationError(
                    f"a key with data must have at most {_LONGEST_KEY_WITH_DATA} characters"
                )
        _check_choice("until", self.until, Until)
        _check_choice("on_conflict", self.on_conflict, OnConflict)
        if self.window is not None:
            check_duration("window", self.window)
            if self.on_conflict == "replace":
                raise ConfigurationError(
                    'a window cannot be given with on_conflict="replace": what is throttled changes nothing; '
                    'use "keep" or "raise", or replace without a window'
                )

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of the payload that count; none for the whole payload, and for no data at all."""
        return self.data if isinstance(self.data, tuple) else ()


@dataclass(frozen=True, slots=True)
class Debounce:
    """Run once, when no call has come for a while: of calls that mean the same job, the last one counts.

    A plain `timedelta` means the same as `Debounce` of it.

    Attributes:
        wait: The job is due this long after the last call.
        max_wait: But never later than this long after the first one.

    Examples:
        >>> debounce = Debounce(timedelta(seconds=5), max_wait=timedelta(minutes=1))
        >>> await monque.enqueue(reindex, Shop(7), unique_key="shop-7", debounce=debounce)
    """

    wait: timedelta
    _: KW_ONLY
    max_wait: timedelta | None = None

    def __post_init__(self) -> None:
        check_duration("debounce", self.wait)
        if self.max_wait is not None and check_duration("max_wait", self.max_wait) < self.wait:
            raise ConfigurationError(
                f"max_wait must not be shorter than the wait of {self.wait}, got {self.max_wait}"
            )

    @classmethod
    def of(cls, given: timedelta | Debounce) -> Debounce:
        """The same as a `Debounce`."""
        return given if isinstance(given, Debounce) else cls(given)


class DuplicateJobError(MonqueError):
    """The job is there already, and the call said `on_conflict="raise"`; nothing was stored.

    Attributes:
        job: The job that is there; its `enqueued` says whether it was `kept` or the call `throttled`.
    """

    __module__ = "monque"  # where users import it from, as the other errors

    def __init__(self, job: Job[Any]) -> None:
        super().__init__(
            f"job {job.id} ({job.name!r}) is {job.status} and stands for this call, too: it has the same "
            f"unique key {job.unique_key!r}"
        )
        self.job = job


def _check_fields(data: object) -> None:
    if data is None or isinstance(data, bool):
        return
    if isinstance(data, str) or not isinstance(data, Sequence):
        raise ConfigurationError(
            f'data of Unique must be True or a list of fields, for example ["customer_id"], got {data!r}'
        )
    if not data or len(set(map(repr, data))) < len(data):
        raise ConfigurationError(f"data of Unique must name each field once, and at least one, got {data!r}")
    for path in data:
        if not isinstance(path, str) or not all(path.split(".")):
            raise ConfigurationError(
                f'a field in data of Unique must be text such as "customer_id" or "item.sku", got {path!r}'
            )


def _check_choice(label: str, value: object, choices: Any) -> None:
    if not isinstance(value, str) or value not in get_args(choices):
        allowed = ", ".join(map(repr, get_args(choices)))
        raise ConfigurationError(f"{label} of Unique must be one of {allowed}, got {value!r}")
