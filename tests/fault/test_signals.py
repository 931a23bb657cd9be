"""Signals to a process with several handlers: each handler gets them, then and afterwards."""

from __future__ import annotations

import signal
from collections.abc import Sequence

import pytest
from pymongo.asynchronous.database import AsyncDatabase

from monque import JobStatus, Monque
from support.programs.child import Child, child
from support.servers import Servers

BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
EVERY_LOOP = pytest.mark.parametrize("loop", [(), ("--uvloop",)], ids=["asyncio", "uvloop"])


@pytest.fixture
def uri(host: Servers, database: AsyncDatabase) -> str:
    return host.uri(database.name)


async def _completed(monque: Monque, *names: str) -> None:
    for name in names:
        [job] = await monque.get_jobs(name=name)
        assert job.status is JobStatus.COMPLETED


def _says(program: Child, *lines: str) -> None:
    assert set(lines) <= set(program.said), program.complaints


@BOTH
@EVERY_LOOP
async def test_two_runs_both_finish_their_jobs_and_end(
    uri: str, monque: Monque, number: signal.Signals, loop: Sequence[str]
) -> None:
    await monque.enqueue("first.patient")
    await monque.enqueue("second.patient")
    async with child("signalled", "two_runs", uri, *loop) as program:
        await program.wait_for("first started a job")
        await program.wait_for("second started a job")
        await program.wait_for("ready")
        program.send(number)
        program.write("go")
        code = await program.ends(within=20)
        await program.finished()

    assert code == 0, program.complaints
    _says(program, "first finished its job", "second finished its job", "first ended", "second ended", "over")
    await _completed(monque, "first.patient", "second.patient")


@BOTH
async def test_a_run_that_still_opens_its_database_receives_the_signal(
    uri: str, monque: Monque, number: signal.Signals
) -> None:
    async with child("signalled", "second_run_still_opens", uri) as program:
        await program.wait_for("ready")
        program.send(number)
        code = await program.ends(within=20)
        await program.finished()

    assert code == 0, program.complaints
    _says(program, "first ended", "second ended", "over")


@BOTH
@EVERY_LOOP
@pytest.mark.parametrize("order", ["uvicorn_first", "run_first"])
async def test_uvicorn_and_run_both_stop_gracefully(
    uri: str, monque: Monque, order: str, number: signal.Signals, loop: Sequence[str]
) -> None:
    """Uvicorn ends before the job: what it then does to the signal must not end the process."""
    await monque.enqueue("first.patient")
    async with child("signalled", order, uri, *loop) as program:
        await program.wait_for("first started a job")
        await program.wait_for("ready")
        program.send(number)
        await program.wait_for("uvicorn ended", within=20)
        program.write("go")
        code = await program.ends(within=20)
        await program.finished()

    assert code == 0, program.complaints
    _says(program, "first finished its job", "first ended", "over")
    await _completed(monque, "first.patient")


@BOTH
@EVERY_LOOP
@pytest.mark.parametrize("kind", ["handler_of_the_loop", "handler_of_the_process"])
async def test_a_handler_of_the_application_is_called_too_and_is_back_afterwards(
    uri: str, monque: Monque, kind: str, number: signal.Signals, loop: Sequence[str]
) -> None:
    async with child("signalled", kind, uri, *loop) as program:
        await program.wait_for("ready")
        program.send(number)
        await program.wait_for("waiting for another signal", within=20)
        assert program.said.count("the application heard it") == 1
        program.send(number)
        code = await program.ends(within=20)
        await program.finished()

    assert code == 0, program.complaints
    assert program.said.count("the application heard it") == 2
    _says(program, "first ended", "over")


async def test_a_third_signal_does_what_it_does_without_monque(uri: str, monque: Monque) -> None:
    """While a handler that swallows its cancellation has three seconds to clean up."""
    await monque.enqueue("deaf")
    async with child("signalled", "deaf", uri) as program:
        await program.wait_for("ready")
        await program.wait_for("deaf began")
        program.send(signal.SIGTERM)
        await program.wait_for("stopping")
        program.send(signal.SIGTERM)
        await program.wait_for("deaf was cancelled")
        program.send(signal.SIGTERM)
        code = await program.ends(within=20)
        await program.finished()

    assert code == -signal.SIGTERM
    assert "first ended" not in program.said


async def test_a_signal_to_a_forked_child_ends_it_and_does_not_reach_the_parent(
    uri: str, monque: Monque
) -> None:
    async with child("signalled", "forks", uri) as program:
        await program.wait_for("ready", within=20)
        assert "first ended" not in program.said
        program.send(signal.SIGTERM)
        code = await program.ends(within=20)
        await program.finished()

    assert code == 0, program.complaints
    _says(program, f"the child ended with {-signal.SIGTERM}", "first ended", "over")
