"""User stories 7 and 8 as their users live them: applications served by uvicorn, on a real MongoDB."""

from __future__ import annotations

import re
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from support.aliases import Collection, Database
from support.invariants import check_invariants
from support.jobs import document
from support.programs.child import Child
from support.waiting import eventually

Serve = Callable[..., Awaitable[Any]]
Run = Callable[..., Awaitable[Child]]


async def status(collection: Collection, name: str) -> Any:
    found = await collection.find_one({"name": name})
    return None if found is None else found["status"]


async def test_decorated_classes_are_discovered_registered_and_given_their_services(serve: Serve) -> None:
    """User story 7, scenarios 1 to 3; FR-021 to FR-023."""
    served = await serve()

    assert await served.get("/workers") == [
        "billing.charge",
        "billing.settle",
        "process-order",
        "slow.cleaning",
        "slow.endless",
        "slow.patient",
    ]
    await served.post("/orders", {"item": "book"})
    await served.child.wait_for("shipped book in EUR with a unit of work")
    await served.child.wait_for("unit of work closed")
    await served.child.wait_for("charged book, shipped so far: ['book']")


@pytest.mark.parametrize("connection", ["mongoengine", "beanie", "native", "blocking", "motor"])
async def test_jobs_are_stored_retrieved_and_processed_on_the_connection_an_application_has(
    connection: str, serve: Serve, collection: Collection
) -> None:
    """User story 8, scenarios 1 to 3; FR-018 to FR-020: the same jobs, whatever the connection.

    The job that was there before the application is processed by its start alone.
    """
    await collection.insert_one(document(name="process-order", data={"item": "lamp"}))

    served = await serve(SHOP_CONNECTION=connection)
    await served.child.wait_for("shipped lamp in EUR with a unit of work")
    job_id = (await served.post("/orders", {"item": "book"}))["job"]
    await served.child.wait_for("shipped book in EUR with a unit of work")

    async def is_completed() -> None:
        job = await served.get(f"/jobs/{job_id}")
        assert job == {"status": "completed", "name": "process-order", "data": {"item": "book"}}

    await eventually(is_completed)
    assert await collection.count_documents({"name": "process-order", "status": "completed"}) == 2


async def test_sigterm_lets_the_running_job_finish_before_the_application_cleans_up(
    serve: Serve, collection: Collection, database: Database
) -> None:
    served = await serve()
    await served.post("/slow/patient")
    await served.child.wait_for("patient began")

    served.child.send(signal.SIGTERM)
    await eventually(lambda: _says(served.child, "Shutting down"))
    await database["signals"].insert_one({})
    await served.child.ends(within=20)

    assert served.child.said[-2:] == ["patient finished", "app down"]
    assert await status(collection, "slow.patient") == "completed"
    assert await collection.count_documents({"status": "processing"}) == 0
    await check_invariants(collection)


async def test_sigterm_puts_back_a_job_that_does_not_finish_within_the_timeout(
    serve: Serve, collection: Collection
) -> None:
    served = await serve(SHOP_TIMEOUT="0.5")
    await served.post("/slow/endless")
    await served.child.wait_for("endless began")

    served.child.send(signal.SIGTERM)
    await served.child.ends(within=20)

    assert served.child.said[-1] == "app down"
    assert await status(collection, "slow.endless") == "pending"
    assert await collection.count_documents({"status": "processing"}) == 0
    await check_invariants(collection)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_second_signal_gives_running_jobs_back_at_once(
    serve: Serve, collection: Collection, number: signal.Signals
) -> None:
    """The shutdown timeout would be ten minutes."""
    served = await serve(SHOP_TIMEOUT="600")
    await served.post("/slow/endless")
    await served.child.wait_for("endless began")

    served.child.send(number)
    await eventually(lambda: _says(served.child, "waits at most 600 s for 1 running job(s) (1 slow.endless)"))
    served.child.send(number)
    await served.child.ends(within=20)
    await served.child.finished()

    assert served.child.said[-1] == "app down", served.child.complaints
    assert "a second signal gives them back at once" in served.child.complaints
    assert await status(collection, "slow.endless") == "pending"
    await check_invariants(collection)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_third_signal_does_not_wait_for_handlers_that_clean_up(
    serve: Serve, number: signal.Signals
) -> None:
    """They would have three seconds."""
    served = await serve(SHOP_TIMEOUT="600")
    await served.post("/slow/cleaning")
    await served.child.wait_for("cleaning began")

    served.child.send(number)
    await eventually(lambda: _says(served.child, "waits at most 600 s"))
    served.child.send(number)
    await served.child.wait_for("cleaning was cancelled")
    served.child.send(number)
    await served.child.wait_for("app down", within=2.5)
    await served.child.ends(within=20)
    await served.child.finished()

    assert "is no longer waited for" in served.child.complaints


async def test_the_start_is_logged(serve: Serve, database: Database) -> None:
    served = await serve()

    found = re.search(r"instance \S+ (works on .*)", served.child.complaints)
    assert found is not None, served.child.complaints
    assert found[1].endswith(f" in {database.name}.monque_jobs, woken by a change stream")
    assert "slow.endless (5 at once)" in found[1]


async def test_uvicorn_shows_what_runs_and_what_a_stop_waits_for_if_nobody_set_up_logging(
    serve: Serve, database: Database
) -> None:
    """uvicorn shows its own log alone."""
    served = await serve(SHOP_LOGGING="")
    await served.post("/slow/patient")
    await served.child.wait_for("patient began")
    served.child.send(signal.SIGTERM)
    await eventually(lambda: _says(served.child, "waits at most"))
    await database["signals"].insert_one({})
    await served.child.ends(within=20)
    await served.child.finished()

    lines = [line for line in served.child.complaints.splitlines() if "monque: instance" in line]
    assert [line.split()[0] for line in lines] == ["INFO:"] * 3
    started, stops, stopped = (line.split(maxsplit=4)[4] for line in lines)
    assert started.startswith("works on billing.charge (5 at once), ")
    assert stops.startswith("stops and waits at most 30 s for 1 running job(s) (1 slow.patient)")
    assert stopped.startswith("stopped after ")


async def test_a_program_that_set_up_logging_has_each_line_once(serve: Serve) -> None:
    served = await serve(SHOP_LOGGING="INFO")

    assert len(re.findall(r"instance \S+ works on ", served.child.complaints)) == 1
    assert "monque: instance" not in served.child.complaints


async def test_a_producer_enqueues_and_a_worker_process_of_the_same_application_runs_the_jobs(
    serve: Serve, run_program: Run, collection: Collection
) -> None:
    """The worker has the application's lifespan: its handlers find what it has put into `app.state`."""
    producer = await serve(SHOP_PROCESS="no")
    await producer.post("/orders", {"item": "book"})
    assert await collection.distinct("name") == ["process-order"]  # no schedule either

    worker = await run_program("shop_app.worker", SHOP_PROCESS="no")
    await worker.wait_for("charged book, shipped so far: ['book']")
    assert await collection.count_documents({"name": "billing.settle", "timezone": "Europe/Berlin"}) == 1

    worker.send(signal.SIGTERM)
    assert await worker.ends() == 0
    assert worker.said[0] == "app up"
    assert worker.said[-1] == "app down"
    assert not [line for line in producer.child.said if "book" in line]


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (
            "twice",
            "'same' is declared twice: broken_app.twice.first (twice.py:7) and "
            "broken_app.twice.Second.handle (twice.py:13)",
        ),
        ("bad_cron", "cron expression 'every monday'"),
        ("header", "greet -> get_user -> get_token: 'authorization' is read from the header"),
        ("missing", "No module named 'broken_app.missing'"),
    ],
)
async def test_an_application_that_cannot_start_fails_with_the_reason(
    broken: str, reason: str, run_program: Run, socket_folder: Any
) -> None:
    served = await run_program(
        "uvicorn", "broken_app.main:app", "--uds", str(socket_folder / "http"), BROKEN=broken
    )

    assert await served.ends() == 3
    await served.finished()
    assert reason in served.complaints


def _says(child: Child, words: str) -> None:
    assert words in child.complaints
