"""Agents of Pydantic AI, the real package: each call of a model or a tool is a step of the job."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import FunctionToolset

from monque import Job, Monque
from monque.embedded import EmbeddedMongo
from monque.pydantic_ai import MonqueDurability
from monque.testing import JobCalls, run_handler
from support.aliases import Database
from support.programs.child import child, uri_of

pytestmark = pytest.mark.timeout(120)


async def test_a_process_that_dies_between_two_tool_calls_repeats_no_call(
    monque: Monque, server: EmbeddedMongo, database: Database, tmp_path: Path
) -> None:
    """It is killed at the beginning of its second tool: by then two answers of the model are stored."""
    notes = tmp_path / "notes"
    job = await monque.enqueue("buy", "a book, please")
    async with child("agent_worker", uri_of(server, database), str(notes)) as first:
        await first.finished()
    before = notes.read_text().split("\n")[:-1]
    async with child("agent_worker", uri_of(server, database), str(notes)):
        result = await monque.result_of(job, timeout=timedelta(seconds=90))

    assert before == ["model 1", "reserve book", "model 2", "died"]
    assert result == "1200 cents for book"
    assert notes.read_text().split("\n")[:-1] == [*before, "charge 1200", "model 3"]
    steps = (await monque.wait_for(job)).steps
    assert [step.name.removeprefix("shop__") for step in steps] == [
        "model.request:1.1",
        "function_toolset__shop.call_tool:reserve:1.1",
        "model.request:1.2",
        "function_toolset__shop.call_tool:charge:1.1",
        "model.request:1.3",
    ]


async def test_an_agent_that_a_tool_calls_is_part_of_the_step_of_that_tool(monque: Monque) -> None:
    """A step inside of a step is refused, so it has none of its own."""
    tools: FunctionToolset[None] = FunctionToolset(id="shop")
    clerk = Agent(TestModel(custom_output_text="a receipt"), name="clerk", capabilities=[MonqueDurability()])

    @tools.tool_plain
    async def ask_clerk(question: str) -> str:
        """Ask the clerk."""
        return (await clerk.run(question, timeout=60)).output

    agent = Agent(TestModel(), name="shop", toolsets=[tools], capabilities=[MonqueDurability()])

    @monque.worker("buy", store_result=True)
    async def buy(job: Job[str]) -> str:
        return (await agent.run(job.data)).output

    job = await monque.enqueue(buy, "a book")
    await monque.run_until_idle()

    assert await monque.result_of(job) == '{"ask_clerk":"a receipt"}'
    assert [step.name for step in (await monque.wait_for(job)).steps] == [
        "shop__model.request:1.1",
        "shop__function_toolset__shop.call_tool:ask_clerk:1.1",
        "shop__model.request:1.2",
    ]


async def test_runs_with_one_id_and_limits_of_time_have_steps_of_their_own() -> None:
    agent = Agent(TestModel(custom_output_text="done"), name="shop", capabilities=[MonqueDurability()])

    async def ask(job: Job[None]) -> list[str]:
        return [(await agent.run(each, run_id="mine", timeout=60)).output for each in ("one", "two")]

    assert await run_handler(ask) == ["done", "done"]


async def test_runs_side_by_side_have_steps_of_their_own_and_outside_of_a_job_there_are_none() -> None:
    tools: FunctionToolset[None] = FunctionToolset(id="shop")

    @tools.tool_plain
    def weigh(item: str) -> int:
        """Weigh an item."""
        return len(item)

    agent = Agent(TestModel(), name="shop", toolsets=[tools], capabilities=[MonqueDurability()])

    async def ask(job: Job[None]) -> list[str]:
        return [each.output for each in await asyncio.gather(agent.run("one"), agent.run("two"))]

    calls = JobCalls()
    assert await run_handler(ask, calls=calls) == ['{"weigh":1}', '{"weigh":1}']
    assert sorted(step.name.removeprefix("shop__") for step in calls.steps) == [
        *(f"function_toolset__shop.call_tool:weigh:{run}.1" for run in (1, 2)),
        *(f"model.request:{run}.{call}" for run in (1, 2) for call in (1, 2)),
    ]
    assert (await agent.run("outside")).output == '{"weigh":1}'
