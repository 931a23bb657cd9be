"""The connection of commands, errors as one sentence, and the audit entries of what they do."""

from __future__ import annotations

import functools
import getpass
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

import click
from click.core import ParameterSource
from pymongo.errors import OperationFailure, PyMongoError

from monque import (
    ConfigurationError,
    Job,
    JobNotFoundError,
    JobStateError,
    MonqueError,
    PayloadError,
    Retention,
    UseName,
)
from monque.cli.target import find_blocking
from monque.sync import SyncMonque

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Database:
    """The database of the jobs: at an address, or that of an app's Monque."""

    uri: str | None = field(repr=False)  # it may hold a password
    collection: str | None = None
    app: str | None = None

    def open(
        self,
        *,
        create_indexes: bool = False,
        listing_indexes: bool = False,
        retention: bool = False,
        uses: tuple[UseName, ...] = (),
    ) -> SyncMonque:
        """Connect; looking must change nothing, so stale jobs stay, and indexes are made on demand only."""
        if not create_indexes:
            self.require_data()
        monque = SyncMonque(self.uri) if self.app is None else find_blocking(self.app)
        own = monque.options
        options = replace(
            own,
            collection=own.collection if self.collection is None else self.collection,
            create_indexes=create_indexes,
            listing_indexes=listing_indexes or own.listing_indexes,
            retention=own.retention or (Retention() if retention else None),
            uses=tuple({*own.uses, *uses}) if create_indexes else (),
            recover_stale_jobs=False,
            instance_id=who("command line"),
        )
        try:
            monque.reconfigure(database=self.uri, options=options)
        except ConfigurationError:
            if self.uri is not None or self.collection is not None:
                raise
            # The app has opened it already, with what it names itself: that is the database that was meant.
        return monque.open()

    def require_data(self) -> None:
        """Refuse to look at an embedded server that would be made only to be looked at."""
        if self.uri is None and self.app is None:
            _require_embedded_data()


def who(place: str) -> str:
    """Return the user and the host, for example for `Pause.by`: a random id would tell nobody anything."""
    return f"{system_user()}@{socket.gethostname()} ({place})"


def system_user() -> str:
    """The user who types the command, as the system knows them."""
    try:
        return getpass.getuser()
    except (KeyError, ImportError, OSError):  # a container may have users without names
        return "unknown"


def _require_embedded_data() -> None:
    from monque.embedded import EmbeddedMongo, EmbeddedMongoError

    try:
        if (EmbeddedMongo().data_dir / "WiredTiger").exists():
            return
    except EmbeddedMongoError:
        pass
    raise click.UsageError(
        "no database was named, and there is no embedded one on this machine yet; give --uri or "
        "--app MODULE:ATTR, or set MONQUE_URI or MONQUE_APP",
        ctx=click.get_current_context(silent=True),
    )


def connects(command: F) -> F:
    """A command that takes a `Database`, named by its options `--uri`, `--app` and `--collection`."""

    @click.option(
        "--uri",
        envvar="MONQUE_URI",
        metavar="URI",
        help="The database, for example mongodb://localhost:27017/shop. Default: that of the app, else "
        "MONQUE_URI, else the embedded MongoDB on this machine.",
    )
    @names_app
    @click.option(
        "--collection", help="The collection of the jobs. Default: that of the app, else monque_jobs."
    )
    @functools.wraps(command)
    def connected(*args: Any, uri: str | None, app: str | None, collection: str | None, **kwargs: Any) -> Any:
        target = kwargs.pop("target", None)
        if target is None and app is not None and _is_typed("uri") and not _is_typed("app"):
            app = None  # who types an address does not mean the app of the environment
        app = chosen_app(target, app)
        database = Database(uri if app is None or _is_typed("uri") else None, collection, app)
        with sentences():
            return command(*args, database=database, **kwargs)

    return connected  # type: ignore[return-value]  # click calls it by keywords


names_app = click.option(
    "--app",
    envvar="MONQUE_APP",
    metavar="MODULE:ATTR",
    help="A Monque, a web app that has one, or a function that returns one. Default: MONQUE_APP.",
)
takes_app = click.argument("target", metavar="[MODULE:ATTR]", required=False)
"""The same as an argument."""


def chosen_app(argument: str | None, option: str | None) -> str | None:
    """The app, which may be named as an argument, by `--app` or by MONQUE_APP."""
    if argument is not None and option is not None and argument != option and _is_typed("app"):
        raise click.UsageError(f"the app is named twice: {argument} and --app {option}")
    return option if argument is None else argument


def _is_typed(parameter: str) -> bool:
    """Return whether it stands on the command line, and is not from the environment or a default."""
    source = click.get_current_context().get_parameter_source(parameter)
    return source is ParameterSource.COMMANDLINE


@contextmanager
def sentences() -> Iterator[None]:
    """Report errors that a user can fix as one line: exit code 2 for wrong input, else 1."""
    try:
        yield
    except (ConfigurationError, PayloadError) as error:
        raise click.UsageError(str(error), ctx=click.get_current_context(silent=True)) from error
    except (MonqueError, PyMongoError) as error:
        raise click.ClickException(str(error)) from error


_UNAUTHORIZED = 13

# The command prints its failure itself; without a handler, Python would print it a second time.
logging.getLogger("monque.audit").addHandler(logging.NullHandler())


@contextmanager
def recording(
    monque: SyncMonque, action: str, job: Job[Any] | None = None, **about: Any
) -> Iterator[dict[str, Any]]:
    """Record the action that is done inside, to *job* if it is about one.

    What becomes known meanwhile is added to what this gives.
    """
    if job is not None:
        about |= {"job_id": job.id, "name": job.name if isinstance(job.name, str) else None, "before": job}
    try:
        yield about
    except MonqueError as error:
        about["note"] = " ".join(filter(None, (about.get("note"), _reason(error))))
        record(monque, action, error, **about)
        raise
    record(monque, action, **about)


def record(monque: SyncMonque, action: str, error: MonqueError | None = None, **about: Any) -> None:
    """Record an action of the user who types the command. It never fails the command."""
    monque.record_action(
        actor=system_user(),
        via="cli",
        action=action,
        outcome="done" if error is None else _outcome(error),
        address=socket.gethostname(),
        **about,
    )


def _outcome(error: MonqueError) -> Literal["refused", "failed"]:
    cause = error.__cause__
    is_refused = isinstance(cause, OperationFailure) and cause.code == _UNAUTHORIZED
    return "refused" if is_refused else "failed"


def _reason(error: MonqueError) -> str:
    """Return why it failed. Texts that may hold a unique key or part of a payload are not for the trail."""
    if isinstance(error, ConfigurationError | PayloadError):
        return "what was given cannot be used"
    if isinstance(error, JobStateError):
        return f"cannot {error.attempted_action} it: it is {error.current_status}"
    return "no such job" if isinstance(error, JobNotFoundError) else str(error)
