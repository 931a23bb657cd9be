"""Before an instance is open: check the server, create indexes, recover the jobs of dead owners."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pymongo
from bson import ObjectId

from monque._engine.context import Context
from monque._engine.recovery import recover
from monque._errors import ConfigurationError, InstanceConflictError, driver_errors
from monque._store import register
from monque._store.document import Document
from monque._store.server import wrong_shard_key
from monque._store.store import Store

logger = logging.getLogger("monque")

# MongoDB 6.0 speaks this version; older servers cannot build the index for unique keys.
_OLDEST_WIRE_VERSION = 17
# From 7.0 on, a mongos can find and change one document of a sharded collection without the shard key.
_OLDEST_SHARDING_WIRE_VERSION = 21

# How long to recover jobs before an instance is open, in seconds; the rest follows with its heartbeats. Half
# of it leaves more jobs to instances that run; with twice of it, jobs that cannot be changed, of which each
# takes a second, keep an instance from opening for a minute.
_LONGEST_RECOVERY = 30.0


async def prepare(context: Context, *, timeout: float | None, own_claims: list[ObjectId]) -> None:
    """Make a collection ready for use.

    Args:
        context: Of the instance that is being opened.
        timeout: How long the first contact may take.
        own_claims: Jobs whose handlers outlived the last stop of this very instance: their claims are alive,
            but not elsewhere.
    """
    store, options = context.store, context.store.options
    with driver_errors("open the database"):
        with pymongo.timeout(timeout), _one_loop():
            hello = await store.server.hello()
            check_server(hello)
            await check_sharding(hello, store)
            await store.clock.refresh(store.server.hello)
        if options.create_indexes:
            await store.create_indexes()
        else:
            await store.uses.read()
        for use in options.uses:
            await store.uses.begin(use)
        if options.instance_id and await store.is_alive_elsewhere(besides=own_claims):
            await _take_over(store)
        if options.recover_stale_jobs:
            await recover(context, within=_LONGEST_RECOVERY)


async def _take_over(store: Store) -> None:
    """Use the id of an earlier process that is gone, though its claims look alive for a while.

    Raises:
        InstanceConflictError: It may be alive.
    """
    now, tolerance = store.clock.now(), store.options.heartbeat_tolerance
    if not await register.is_gone(store.companions.register, store.instance_id, now=now, tolerance=tolerance):
        raise InstanceConflictError(store.instance_id)
    logger.warning("the earlier process of instance %r is gone; this one takes its place", store.instance_id)


def check_server(hello: Document) -> None:
    """Refuse servers that cannot hold the index for unique keys."""
    if hello.get("maxWireVersion", 0) < _OLDEST_WIRE_VERSION:
        raise ConfigurationError(
            "this MongoDB server is older than 6.0; Monque needs 6.0 or newer "
            f"(it speaks wire version {hello.get('maxWireVersion')}, 6.0 speaks {_OLDEST_WIRE_VERSION})"
        )


async def check_sharding(hello: Document, store: Store) -> None:
    """Refuse a sharded collection where a promise cannot be kept.

    On an old cluster, a job cannot be changed by its id alone. Unless the name alone is the shard key, an
    index that begins with the name cannot be unique.
    """
    shard_key = await store.server.shard_key()
    if shard_key and hello["maxWireVersion"] < _OLDEST_SHARDING_WIRE_VERSION:
        raise ConfigurationError(
            "the jobs collection is sharded, and this MongoDB cluster is older than 7.0, where a job cannot "
            "be changed by its id alone; use 7.0 or newer, or leave the collection unsharded"
        )
    if not shard_key <= {"name"}:
        raise wrong_shard_key(store.collection)


@contextmanager
def _one_loop() -> Iterator[None]:
    """Say in our own words that a client belongs to the loop in which it was first used."""
    try:
        yield
    except RuntimeError as error:
        if "event loop" not in str(error):
            raise
        raise ConfigurationError(
            "this AsyncMongoClient was used in another event loop before and cannot be used in this one; "
            "make the client inside this loop, or pass a URI"
        ) from error
