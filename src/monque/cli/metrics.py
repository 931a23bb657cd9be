"""`/metrics` for Prometheus: of one worker process, or of all those of a supervisor together.

Several processes write what they count into files of one folder, as prometheus_client does where
`PROMETHEUS_MULTIPROC_DIR` is set, and the supervisor adds it up. So one scrape sees all of them, and
nothing that was counted is lost when a process dies.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from monque.cli.listen import Ports, asked, listening, response

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from monque.cli.target import Served

logger = logging.getLogger("monque.cli")

_FOLDER = "PROMETHEUS_MULTIPROC_DIR"

# A scrape may meet the file of a process that is just being made or removed, and cannot read it: it tries
# again after each of these pauses, in seconds.
_PAUSES = (0.02, 0.1, 0.5)


def require_prometheus() -> None:
    """Say what to install if it is missing."""
    try:
        import prometheus_client  # noqa: F401 - only whether it is there
    except ModuleNotFoundError as error:
        raise click.ClickException(
            "--metrics-port needs prometheus_client; install it with: pip install 'pymonque[prometheus]'"
        ) from error


@contextmanager
def shared_folder(wanted: bool) -> Iterator[str | None]:
    """Yield the folder for the counts of several processes: the user's own, or one that lasts as long."""
    if not wanted:
        yield None
    elif given := os.environ.get(_FOLDER):
        yield given
    else:
        with TemporaryDirectory(prefix="monque-metrics-") as folder:
            yield folder


def use_folder(folder: str | None) -> None:
    """Leave what is counted here in *folder*; before anything imports prometheus_client."""
    if folder is not None:
        os.environ[_FOLDER] = folder


def measure(served: Served) -> None:
    """Count what this instance does, in the registry that the user's own metrics are in."""
    from prometheus_client import REGISTRY

    from monque.prometheus import MonqueCollector

    try:
        REGISTRY.register(MonqueCollector(served))
    except ValueError:
        logger.info("the code has registered a MonqueCollector itself")


def forget(folder: str | None, pid: int) -> None:
    """A process has ended: what it counted stays, what it measured last does not."""
    if folder is not None:
        from prometheus_client.multiprocess import mark_process_dead

        mark_process_dead(pid, folder)  # type: ignore[no-untyped-call]  # it has no annotations


@asynccontextmanager
async def metrics_server(ports: Ports, folder: str | None = None) -> AsyncIterator[None]:
    """Answer `/metrics` on the port for metrics while this lasts; without a port, do nothing."""
    if ports.metrics is None:
        yield
        return
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

    registry = _registry(folder or os.environ.get(_FOLDER))

    async def answer(request: bytes) -> bytes:
        method, path = asked(request)
        if path != "/metrics":
            return response(method, HTTPStatus.NOT_FOUND, b"there is /metrics\n", "text/plain")
        for pause in _PAUSES:
            try:
                # In a thread: a collector of the user may take its time.
                text = await asyncio.to_thread(generate_latest, registry)
            except Exception as error:  # noqa: BLE001 - a collector of the user may raise anything
                logger.debug("the metrics could not be read, trying again: %r", error)
                await asyncio.sleep(pause)
            else:
                return response(method, HTTPStatus.OK, text, CONTENT_TYPE_LATEST)
        logger.warning("the metrics could not be read; the log at level DEBUG says why")
        return response(method, HTTPStatus.INTERNAL_SERVER_ERROR, b"see the log\n", "text/plain")

    async with listening(ports.host, ports.metrics, "metrics", answer) as actual:
        logger.info("metrics are on port %d", actual)
        yield


def _registry(folder: str | None) -> CollectorRegistry:
    from prometheus_client import REGISTRY, CollectorRegistry
    from prometheus_client.multiprocess import MultiProcessCollector

    if folder is None:
        return REGISTRY
    registry = CollectorRegistry()
    MultiProcessCollector(registry, folder)  # type: ignore[no-untyped-call]  # it has no annotations
    return registry
