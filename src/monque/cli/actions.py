"""The commands of `monque jobs` that change jobs: one for each of `OPERATIONS`."""

from __future__ import annotations

import functools
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import click
from bson import ObjectId

from monque import (
    OPERATIONS,
    BulkResult,
    Job,
    JobNotFoundError,
    JobStateError,
    JobStatus,
    Operation,
    OperationOption,
)
from monque._views.text import shown_id
from monque.cli.output import as_json, ids_meant, print_json, progress
from monque.cli.selection import Selection, selects
from monque.cli.session import Database, connects, recording, system_user
from monque.cli.times import duration, moment
from monque.sync import SyncMonque

Decorator: TypeAlias = Callable[[Any], Any]


def commands() -> Iterator[click.Command]:
    """A command for each operation, on jobs named by ID or on all that match the filters."""
    for operation in OPERATIONS.values():
        function: Any = functools.partial(_perform, operation)
        for decorate in (connects, as_json, *_NAMED, *_takes(operation), *_CHOSEN):
            function = decorate(function)
        yield click.command(operation.route, help=_help(operation))(function)


def _help(operation: Operation) -> str:
    needed = "".join(_EXAMPLES[option.kind] for option in operation.options if option.required)
    return f"""{operation.summary}. Name jobs by ID, or choose all that match the filters. {operation.only()}

    \b
    Examples:
      monque jobs {operation.route}{needed} 65f1c0ffee65f1c0ffee0001
      monque jobs {operation.route}{needed} --name send-email --yes
    """


_EXAMPLES = {"priority": " 9", "time": " --delay 10m"}
_NAMED: tuple[Decorator, ...] = (click.argument("ids", nargs=-1, metavar="[ID]..."),)
_CHOSEN: tuple[Decorator, ...] = (
    click.option("--yes", is_flag=True, help="Do not ask."),
    click.option("--all", "everything", is_flag=True, help="Every job, instead of filters."),
    selects,
)


def _takes(operation: Operation) -> Iterator[Decorator]:
    """The note and the options of an operation, as those of its command."""
    if operation.keeps_reason:
        kept = "Why; kept with the jobs, and in the audit trail."
        yield click.option("--note", "--reason", "note", help=kept)
    else:
        yield click.option("--note", help="Why; kept in the audit trail.")
    for option in operation.options:
        yield from _as_typed(option)


def _as_typed(option: OperationOption) -> Iterator[Decorator]:
    match option.kind:
        case "priority":
            yield click.argument(option.name, type=click.IntRange(0, 9))
        case "time":
            yield click.option("--delay", type=duration, help="How long from now, for example 5m.")
            yield click.option("--at", type=moment, help="When, with a zone, such as 2030-05-01T09:00+02:00.")
        case "duration":
            yield click.option(f"--{option.name}", type=duration, help=option.help)
        case "text":
            yield click.option(_dashed(option), metavar="NAME", help=option.help)
        case "flag":
            yield click.option(_dashed(option), is_flag=True, default=None, help=option.help)


def _dashed(option: OperationOption) -> str:
    return f"--{option.name.replace('_', '-')}"


def _perform(
    operation: Operation,
    database: Database,
    *,
    ids: tuple[str, ...],
    selection: Selection,
    everything: bool,
    yes: bool,
    as_json: bool,
    note: str | None,
    **typed: Any,
) -> None:
    """Do it to the jobs that are meant; what is meant must be said in exactly one way."""
    if [bool(ids), bool(selection), everything].count(True) != 1:
        raise click.UsageError(f"say which jobs to {operation.name}: by ID, by filters, or --all")
    if "at" in typed and (typed["at"] is None) == (typed["delay"] is None):
        raise click.UsageError("say when: give either --at or --delay")
    of_many = [each.name for each in operation.options if not each.single and typed[each.name] is not None]
    if ids and of_many:
        raise click.UsageError(f"--{of_many[0]} is for many jobs: name them by filters, such as --id")
    with database.open(create_indexes=operation.use is not None) as monque:
        options = dict(_options(operation, typed, monque))
        action = _Action(operation, monque, options, note, as_json)
        action.by_id(ids) if ids else action.by_filter(selection, yes)


def _options(operation: Operation, typed: Mapping[str, Any], monque: SyncMonque) -> Iterator[tuple[str, Any]]:
    """The options that were given; a delay is counted from now by the server's clock."""
    for option in operation.options:
        if option.kind == "time":
            yield option.name, typed["at"] or monque.server_time() + typed["delay"]
        elif typed[option.name] is not None:
            yield option.name, typed[option.name]


@dataclass(frozen=True, slots=True)
class _Action:
    """An operation, as it was typed."""

    operation: Operation
    monque: SyncMonque
    options: dict[str, Any]
    note: str | None
    as_json: bool

    @property
    def stops(self) -> bool:
        """True if it may ask running jobs to stop; they are told apart from those that it has changed."""
        flags = {option.name: True for option in self.operation.options}
        return JobStatus.PROCESSING in (self.operation.states(flags) or ())

    def by_id(self, ids: tuple[str, ...]) -> None:
        """Do it to these jobs, one after the other; exit with 1 if one refuses."""
        problems = 0
        for text in ids:
            after, error = self._try(meant(self.monque, text))
            problems += error is not None
            is_asked = self.stops and after is not None and after.status is JobStatus.PROCESSING
            if self.as_json:
                asked = {"requested": is_asked} if self.stops else {}
                print_json({"id": text, "done": error is None, "error": error, **asked})
            elif error is None:
                click.echo(f"asked {text} to stop" if is_asked else f"{self.operation.done} {text}")
            else:
                click.echo(f"Error: {error}", err=True)
        if problems:
            click.get_current_context().exit(1)

    def _try(self, job_id: Any) -> tuple[Job[Any] | None, str | None]:
        """Return the job as it is since, or the error as text; the audit trail has it, too."""
        before = self.monque.get_job(job_id)
        try:
            with recording(self.monque, self.operation.name, before, job_id=job_id, note=self.note) as known:
                job = before or job_id
                known["after"] = self.monque.act(self.operation, job, note=self.note, **self.options)
        except JobNotFoundError as error:
            return None, unknown_id(error.job_id)
        except JobStateError as error:
            return None, _explained(error, before)
        return known["after"], None

    def by_filter(self, selection: Selection, yes: bool) -> None:
        """Do it to all that match, after asking; exit with 1 if one refuses."""
        verb, states = self.operation.verb, self.operation.states(self.options)
        wanted = selection.filter(now=self.monque.server_time(), among=states)
        count = self.monque.count_jobs(wanted) if wanted else 0
        if count and not yes:
            those = "" if states is None else f" that are {' or '.join(sorted(states))}"
            click.confirm(f"{verb} {count:,} job(s){those} ({selection})?", abort=True, err=True)
        result = BulkResult(count=0, errors=[])
        if wanted and count:
            with progress(f"{verb} {count:,} jobs", count) as tell:
                result = self.monque.bulk(
                    self.operation,
                    wanted,
                    on_piece=lambda done: tell(done.count + done.requested + len(done.errors)),
                    actor=system_user(),
                    via="cli",
                    address=socket.gethostname(),
                    note=self.note,
                    **self.options,
                )
        self._report(result)
        self._tell_passed_over(selection)
        if result.errors:
            click.get_current_context().exit(1)

    def _report(self, result: BulkResult) -> None:
        errors = [{"id": shown_id(error.job_id), "error": error.error} for error in result.errors]
        if self.as_json:
            asked = {"requested": result.requested} if self.stops else {}
            print_json({"count": result.count, "errors": errors, **asked})
            return
        if self.operation.applies_to != frozenset({JobStatus.PROCESSING}):
            click.echo(f"{self.operation.done} {result.count:,} job(s)")
        if result.requested:
            click.echo(f"asked {result.requested:,} running job(s) to stop")
        for error in errors:
            click.echo(f"Error: {error['id']}: {error['error']}", err=True)

    def _tell_passed_over(self, selection: Selection) -> None:
        """Tell how many matching jobs run, if an option would have included them."""
        for option in self.operation.options:
            if option.also and option.name not in self.options:
                wanted = selection.filter(now=self.monque.server_time(), among=option.also)
                if count := self.monque.count_jobs(wanted) if wanted else 0:
                    click.echo(f"{count:,} run; add --{option.name} to stop them", err=True)


def meant(monque: SyncMonque, text: str) -> Any:
    """The id that a text means: itself, unless there is only a job with the value that it is the JSON of."""
    itself, *values = ids_meant(text)
    if not values or monque.get_job(itself) is not None:
        return itself
    return next((value for value in values if monque.get_job(value) is not None), itself)


def unknown_id(job_id: object) -> str:
    """Return the message for an unknown job; for a text that is no id, also how an id looks."""
    looks_like_one = ObjectId.is_valid(str(job_id))
    advice = (
        "" if looks_like_one else "; an id has 24 hexadecimal characters, as `monque jobs list` shows them"
    )
    return f"no job with id {job_id}{advice}"


def _explained(error: JobStateError, job: Job[Any] | None) -> str:
    """Return the error, with the option of this command line instead of the argument of the method."""
    if error.attempted_action != "cancel" or error.current_status != JobStatus.PROCESSING:
        return str(error)
    where = "" if job is None or job.claimed_by is None else f" in the instance {job.claimed_by}"
    return f"cannot cancel job {shown_id(error.job_id)}: it runs{where}; to tell it to stop, add --running"
