"""How commands reach the jobs: `--uri` and `--collection`, and errors as one sentence."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click
from pymongo.errors import PyMongoError

from monque import ConfigurationError, MonqueError, Options, PayloadError, Retention
from monque.sync import SyncMonque

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Database:
    """Where the jobs are."""

    uri: str | None = field(repr=False)  # it may hold a password
    collection: str

    def open(
        self, *, create_indexes: bool = False, listing_indexes: bool = False, retention: bool = False
    ) -> SyncMonque:
        """Connect; looking must change nothing, so stale jobs stay, and indexes are made on demand only."""
        options = Options(
            collection=self.collection,
            create_indexes=create_indexes,
            listing_indexes=listing_indexes,
            retention=Retention() if retention else None,
            recover_stale_jobs=False,
        )
        return SyncMonque(self.uri, options=options).open()


def connects(command: F) -> F:
    """A command that takes a `Database`, named by its options `--uri` and `--collection`."""

    @click.option(
        "--uri",
        envvar="MONQUE_URI",
        metavar="URI",
        help="The database, for example mongodb://localhost:27017/shop. Default: MONQUE_URI, else an "
        "embedded MongoDB on this machine.",
    )
    @click.option(
        "--collection", default="monque_jobs", show_default=True, help="The collection the jobs live in."
    )
    @functools.wraps(command)
    def connected(*args: Any, uri: str | None, collection: str, **kwargs: Any) -> Any:
        with sentences():
            return command(*args, database=Database(uri, collection), **kwargs)

    return connected  # type: ignore[return-value]  # click calls it by keywords


@contextmanager
def sentences() -> Iterator[None]:
    """What users can do something about is told in a sentence: exit code 2 for wrong input, else 1."""
    try:
        yield
    except (ConfigurationError, PayloadError) as error:
        raise click.UsageError(str(error), ctx=click.get_current_context(silent=True)) from error
    except (MonqueError, PyMongoError) as error:
        raise click.ClickException(str(error)) from error
