"""`manage.py monque_worker`."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, BooleanOptionalAction
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
        """As `monque worker` has them."""
        many: Any = {"action": "append", "default": [], "metavar": "NAME"}
        parser.add_argument(
            "--queue", **many, help="Run only tasks of this queue, and no other workers; may be repeated."
        )
        parser.add_argument("--backend", default=DEFAULT_ALIAS, help="An alias of TASKS. Default: default.")
        parser.add_argument("--uri", help="Use this database instead of the one of the settings.")
        parser.add_argument(
            "--concurrency", type=_count, help="How many runs of one task there are at once in a process."
        )
        parser.add_argument(
            "--instance-concurrency", type=_count, help="How many jobs run at once in a process. Default: 10."
        )
        parser.add_argument(
            "--child-processes", type=_count, help="How many children run handlers with mode='process'."
        )
        parser.add_argument("--only", **many, help="Run only jobs of this name; may be repeated.")
        parser.add_argument("--except", dest="excluding", **many, help="Leave out this name.")
        parser.add_argument("--processes", type=_count, default=1, help="How many processes. Default: 1.")
        parser.add_argument("--until-idle", action="store_true", help="Run everything that is due, then end.")
        parser.add_argument(
            "--reload",
            action=BooleanOptionalAction,
            default=None,
            help="Start again when a source file changes. Default: if DEBUG is set.",
        )
        parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="asyncio")
        parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
        parser.add_argument("--log-format", choices=("text", "json"), default="text")
        parser.add_argument("--health-port", type=int, help="Answer /healthz and /readyz on this port.")
        parser.add_argument("--metrics-port", type=int, help="Answer /metrics for Prometheus on this port.")
        parser.add_argument(
            "--host",
            default="127.0.0.1",
            help="The address of these ports. Default: 127.0.0.1; 0.0.0.0 lets other machines in.",
        )

    def handle(self, **given: Any) -> None:
        """Run until a signal comes, or until there is nothing to do if that was asked for."""
        try:
            import click

            from monque.cli.session import sentences
        except ModuleNotFoundError:
            raise CommandError("monque_worker needs click: pip install 'pymonque[django]'") from None
        alias = given["backend"]
        _check(alias, given)
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
        if given["until_idle"]:
            _open_again(alias)


def _check(alias: str, given: dict[str, Any]) -> None:
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
    if wrong := [queue for queue in given["queue"] if known and queue not in known]:
        raise CommandError(
            f'there is no queue {wrong[0]!r} in TASKS["{alias}"]["QUEUES"]; it has {", ".join(sorted(known))}'
        )
    if given["reload"] and given["until_idle"]:
        raise CommandError("--reload and --until-idle cannot be given together")
    if given["only"] and given["excluding"]:
        raise CommandError("--only and --except cannot be given together")


def _run(given: dict[str, Any]) -> int:
    """Run one process, or several below this one; the exit code."""
    from monque.cli.listen import Ports
    from monque.cli.log import set_up_logging
    from monque.cli.metrics import require_prometheus
    from monque.cli.work import Settings, run_worker

    set_up_logging(given["log_level"], given["log_format"])
    ports = Ports(health=given["health_port"], metrics=given["metrics_port"], host=given["host"])
    if ports.metrics is not None:
        require_prometheus()
    worker = Settings(
        target=TARGET,
        uri=given["uri"],
        concurrency=given["concurrency"],
        instance_concurrency=given["instance_concurrency"],
        child_processes=given["child_processes"],
        only=tuple(given["only"]),
        excluding=tuple(given["excluding"]),
        until_idle=given["until_idle"],
        loop=given["loop"],
        log_level=given["log_level"],
        log_format=given["log_format"],
    )
    reloads = _reloads(given)
    if not reloads and given["processes"] == 1:
        run_worker(worker, place=None, ports=ports)
        return 0
    from monque.cli.supervise import supervise

    root = _root()
    # The processes are started with `python -m monque`, which knows nothing of the folder of manage.py.
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", settings.SETTINGS_MODULE)
    return supervise(worker, count=given["processes"], folder=root if reloads else None, ports=ports)


def _reloads(given: dict[str, Any]) -> bool:
    if sys.platform == "win32":
        if given["reload"] or given["processes"] > 1:
            raise CommandError("--processes and --reload are not available on Windows")
        return False
    if given["reload"] is None:
        return bool(settings.DEBUG) and not given["until_idle"]
    return bool(given["reload"])


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


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)
