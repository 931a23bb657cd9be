"""`manage.py monque_worker`."""

from __future__ import annotations

import json
import os
import sys
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, BooleanOptionalAction
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from monque import MonqueError
from monque.django.backend import MonqueBackend
from monque.django.clients import get_monque
from monque.django.conf import BACKEND, DEFAULT_ALIAS, configuration_of
from monque.django.interface import task_backends
from monque.django.serving import VARIABLE

TARGET = "monque.django.serving:served"


class Command(BaseCommand):
    """Runs tasks, and the workers of `get_monque()`."""

    help = (
        "Run the tasks of this project, and the workers of get_monque(). SIGINT and SIGTERM end it "
        "gracefully: running jobs are finished."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options of a project, and those of `monque worker`."""
        parser.add_argument(
            "--queue",
            action="append",
            default=[],
            metavar="NAME",
            help="Run only tasks of this queue, and no other workers; may be repeated.",
        )
        parser.add_argument("--backend", default=DEFAULT_ALIAS, help="An alias of TASKS. Default: default.")
        parser.add_argument(
            "--reload",
            action=BooleanOptionalAction,
            default=None,
            help="Start again when a source file changes. Default: if DEBUG is set.",
        )
        for option in _import_worker().worker.params:
            if option.name not in ("target", "app", "reload") and not option.hidden:
                parser.add_argument(*option.opts, dest=option.name, default=SUPPRESS, **_as_argument(option))

    def handle(self, **given: Any) -> None:
        """Run until a signal comes, or until there is nothing to do if that was asked for."""
        import click

        from monque.cli.session import sentences

        alias = given["backend"]
        _check(alias, given["queue"])
        os.environ[VARIABLE] = json.dumps({"alias": alias, "queues": given["queue"]})
        try:
            with sentences():
                code = _run(given)
        except click.ClickException as error:
            raise CommandError(error.format_message(), returncode=error.exit_code) from error
        finally:
            del os.environ[VARIABLE]
        if code:
            sys.exit(code)
        if given.get("until_idle"):
            _open_again(alias)


def _import_worker() -> Any:
    try:
        return import_module("monque.cli.worker")
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        raise CommandError("monque_worker needs click: pip install 'pymonque[django]'") from None


def _as_argument(option: Any) -> dict[str, Any]:
    """An option of click, in the words of argparse."""
    import click

    [_, shown] = option.get_help_record(click.Context(click.Command(None)))
    if option.is_flag:
        return {"action": "store_true", "help": shown}

    def convert(text: str) -> Any:
        try:
            return option.type(text, option)
        except click.BadParameter as error:
            raise ArgumentTypeError(error.message) from error

    more: dict[str, Any] = {"action": "append"} if option.multiple else {}
    if isinstance(option.type, click.Choice):
        more = {"choices": option.type.choices}
    return {"type": convert, "metavar": option.metavar, "help": shown, **more}


def _check(alias: str, queues: list[str]) -> None:
    try:
        configuration_of(alias)
    except MonqueError as error:
        raise CommandError(str(error)) from error
    backend = task_backends[alias]
    if not isinstance(backend, MonqueBackend):
        kind = f"{type(backend).__module__}.{type(backend).__qualname__}"
        raise CommandError(
            f'TASKS["{alias}"] has the backend {kind}, whose tasks are no jobs of Monque; '
            f'this command needs "{BACKEND}"'
        )
    known = backend.queues
    if wrong := [queue for queue in queues if known and queue not in known]:
        raise CommandError(
            f'there is no queue {wrong[0]!r} in TASKS["{alias}"]["QUEUES"]; it has {", ".join(sorted(known))}'
        )


def _run(given: dict[str, Any]) -> int:
    """Run one process, or several below this one; the exit code."""
    from monque.cli.listen import Ports
    from monque.cli.log import set_up_logging
    from monque.cli.work import Settings
    from monque.cli.worker import serve

    host = given.get("host", Ports().host)
    ports = Ports(health=given.get("health_port"), metrics=given.get("metrics_port"), host=host)
    names = {each: tuple(given.get(each, ())) for each in ("only", "excluding")}
    worker = Settings.taken_from({**given, **names, "target": TARGET})
    set_up_logging(worker.log_level, worker.log_format)
    reloads = given["reload"]
    if reloads is None:
        reloads = settings.DEBUG and not worker.until_idle and sys.platform != "win32"
    return serve(worker, count=given.get("processes", 1), reloads=reloads, root=_prepared, ports=ports)


def _prepared() -> Path:
    """The folder of the project, where processes look that are started with `python -m monque`."""
    root = _root()
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", settings.SETTINGS_MODULE)
    return root


def _root() -> Path:
    """The folder of the project: where the package of its settings lies."""
    name: str = settings.SETTINGS_MODULE
    file = import_module(name).__file__
    if file is None:
        return Path.cwd()
    # `shop.settings` lies in `shop/settings.py`, a package of settings in `shop/settings/__init__.py`.
    depth = name.count(".") + (1 if Path(file).name == "__init__.py" else 0)
    return Path(file).resolve().parents[depth]


def _open_again(alias: str) -> None:
    """The worker has closed the Monque of this process. Whoever called the command may go on using it."""
    with suppress(MonqueError):
        monque = get_monque(alias)
        monque.workers.restrict()
        monque.open()
