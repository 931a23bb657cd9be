"""Errors that users meet first: one sentence that says what is wrong and what to do."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import socket
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from bson import ObjectId
from pymongo.errors import PyMongoError, ServerSelectionTimeoutError

import monque as public
from monque import (
    ClaimLostError,
    ConfigurationError,
    ConnectionError,
    InvalidCronError,
    InvalidJobIdentifierError,
    JobFilter,
    JobNotFoundError,
    JobStateError,
    JobStatus,
    Monque,
    MonqueError,
    NewJob,
    NotOpenError,
    PayloadTooLargeError,
    ShutdownTimeoutError,
)
from monque.embedded import EmbeddedMongo
from support.aliases import Database, Make
from support.options import QUICK
from support.programs.child import uri_of
from support.servers import Servers
from support.waiting import eventually

ID = ObjectId()


@pytest.fixture
def uri(server: EmbeddedMongo, database: Database) -> str:
    return uri_of(server, database)


# The driver forgets the socket of a connection that is being made when its client is closed.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
async def test_a_refused_connection_is_one_sentence_with_the_address_and_the_dump_is_its_cause() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]

    with pytest.raises(ConnectionError) as refused:
        await Monque(f"mongodb://127.0.0.1:{port}/shop?serverSelectionTimeoutMS=200").open()

    assert str(refused.value) == (
        f"could not open the database: no MongoDB at 127.0.0.1:{port} (connection refused); "
        "start it there, or correct the address in the URI; for development, Monque() without an address "
        "starts a MongoDB of its own: pip install 'pymonque[embedded]'"
    )
    assert isinstance(refused.value.__cause__, ServerSelectionTimeoutError)
    assert "Topology Description" in str(refused.value.__cause__)
    gc.collect()


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
async def test_an_outage_is_logged_without_the_dump_of_the_driver(caplog: pytest.LogCaptureFixture) -> None:
    with Servers(replica_set=False) as servers:
        monque = Monque(servers.uri("shop", serverSelectionTimeoutMS=300), options=QUICK)
        monque.worker("work", lambda job: None)
        async with monque:
            await monque.start()
            servers.nodes[0].kill()

            async def logged() -> None:
                assert f"{servers.nodes[0].address} (connection refused); start it there" in caplog.text

            await eventually(logged)

    assert "Topology Description" not in caplog.text
    assert "configured timeouts" not in caplog.text
    gc.collect()


CALLS: dict[str, Callable[[Monque], Coroutine[Any, Any, Any]]] = {
    "open": lambda monque: monque.open(),
    "start": lambda monque: monque.start(),
    "stop": lambda monque: monque.stop(),
    "run": lambda monque: monque.run(),
    "run_until_idle": lambda monque: monque.run_until_idle(),
    "close": lambda monque: monque.close(),
    "enqueue": lambda monque: monque.enqueue("work"),
    "enqueue_many": lambda monque: monque.enqueue_many([NewJob("work")]),
    "schedule": lambda monque: monque.schedule("@daily", "work"),
    "get_job": lambda monque: monque.get_job(ID),
    "list_jobs": lambda monque: monque.list_jobs(),
    "queue_stats": lambda monque: monque.queue_stats(),
    "cancel_jobs": lambda monque: monque.cancel_jobs(JobFilter()),
    "diagnose": lambda monque: monque.diagnose(),
}


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_from_another_event_loop_is_refused_and_the_first_one_goes_on(
    monque: Monque, call: str
) -> None:
    """As code does that calls `asyncio.run` in a thread, beside the loop that opened the Monque."""

    async def elsewhere() -> None:
        await CALLS[call](monque)

    await monque.start()
    with pytest.raises(ConfigurationError) as refused:
        await asyncio.to_thread(asyncio.run, elsewhere())

    assert str(refused.value) == (
        "this Monque was opened in another event loop and works only there; open one in each loop, send the "
        "call to its loop with asyncio.run_coroutine_threadsafe, or use a SyncMonque from threads"
    )
    assert await monque.enqueue("work")


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_without_an_event_loop_raises_an_error_that_says_what_is_needed(
    make_monque: Make, call: str
) -> None:
    """As trio does: it runs the coroutine itself, and asyncio knows of no running loop."""
    closed, opened = make_monque(), make_monque()
    await opened.start()

    def run_without_asyncio(monque: Monque) -> None:
        coroutine = CALLS[call](monque)
        try:
            coroutine.send(None)
        finally:
            coroutine.close()

    for monque in [closed, opened] if call in ("open", "start", "run", "run_until_idle") else [opened]:
        with pytest.raises(ConfigurationError) as refused:
            await asyncio.to_thread(run_without_asyncio, monque)
        assert str(refused.value) == (
            "Monque needs asyncio, and no asyncio event loop runs here; start the program with "
            "asyncio.run(...), choose the asyncio backend in AnyIO (trio does not work), or use a SyncMonque"
        )


# The clients were not closed, and the driver says so.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_an_instance_can_be_used_again_after_its_event_loop_has_ended(uri: str) -> None:
    """As a script does that calls `asyncio.run` twice and does not close its Monque in between."""
    monque = Monque(uri, options=QUICK)
    done: list[int] = []
    monque.worker("work", lambda job: done.append(job.data))

    async def use(number: int) -> None:
        await monque.start()
        await monque.enqueue("work", number)
        await monque.run_until_idle()

    for number in range(3):
        asyncio.run(use(number))
    assert not monque.is_healthy()
    asyncio.run(monque.stop())
    asyncio.run(monque.close())

    assert done == [0, 1, 2]
    assert "closed" in repr(monque)
    gc.collect()


ERRORS: list[MonqueError] = [
    MonqueError("what"),
    ConnectionError("what", labels=["TransientTransactionError"]),
    NotOpenError("what"),
    InvalidCronError("what", expression="61 * * * *"),
    InvalidJobIdentifierError("what", field="name", value=""),
    PayloadTooLargeError(job_name="work", size=2, limit=1),
    JobNotFoundError(ID),
    JobStateError("what", job_id=ID, current_status=JobStatus.PENDING, attempted_action="retry"),
    ClaimLostError("what", job_id=ID),
    ShutdownTimeoutError([]),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling_and_copying(error: MonqueError) -> None:
    """As `multiprocessing` and `concurrent.futures` send errors from one process to another."""
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):  # noqa: S301
        assert type(again) is type(error)
        assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))
    if isinstance(error, PyMongoError):
        assert pickle.loads(pickle.dumps(error)).has_error_label("TransientTransactionError")  # noqa: S301


def test_tracebacks_name_errors_as_users_import_them() -> None:
    errors = [error for error in vars(public._values.errors).values() if isinstance(error, type)]
    public_errors = [error for error in errors if issubclass(error, MonqueError)]

    assert len(public_errors) > 10
    for error in public_errors:
        assert f"{error.__module__}.{error.__qualname__}" == f"monque.{error.__name__}"
        assert getattr(public, error.__name__) is error
    shown = traceback.format_exception_only(ConfigurationError("what"))
    assert shown == ["monque.ConfigurationError: what\n"]
