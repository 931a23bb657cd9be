"""A worker whose handler is an agent that dies once, in its second tool: `agent_worker.py URI FILE`."""

import asyncio
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import FunctionToolset

from monque import Job, Monque, Options
from monque.pydantic_ai import MonqueDurability

notes = Path(sys.argv[2])
# The job of a process that was killed is taken over within a second.
OPTIONS = Options(heartbeat_interval=timedelta(seconds=0.1), heartbeat_tolerance=timedelta(seconds=1))


def note(text: str) -> None:
    with notes.open("a") as file:
        file.write(f"{text}\n")


def die_once() -> None:
    if "died" not in notes.read_text():
        note("died")
        os.kill(os.getpid(), signal.SIGKILL)


def think(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    """Ask for one tool after the other, and then answer with what they returned."""
    parts = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    note(f"model {len(parts) + 1}")
    match [part.content for part in parts]:
        case []:
            return ModelResponse(parts=[ToolCallPart("reserve", {"item": "book"})])
        case [reserved]:
            return ModelResponse(parts=[ToolCallPart("charge", {"cents": reserved["cents"]})])
        case [reserved, receipt]:
            return ModelResponse(parts=[TextPart(f"{receipt} for {reserved['item']}")])
    raise AssertionError(parts)


tools: FunctionToolset[None] = FunctionToolset(id="shop")


@tools.tool_plain
def reserve(item: str) -> dict[str, object]:
    """Reserve an item."""
    note(f"reserve {item}")
    return {"item": item, "cents": 1_200, "$odd.key": None}


@tools.tool_plain
async def charge(cents: int) -> str:
    """Charge the card."""
    die_once()
    note(f"charge {cents}")
    return f"{cents} cents"


agent = Agent(FunctionModel(think), name="shop", toolsets=[tools], capabilities=[MonqueDurability()])


async def buy(job: Job[str]) -> str:
    return (await agent.run(job.data)).output


async def main() -> None:
    async with Monque(sys.argv[1], options=OPTIONS) as monque:
        monque.worker("buy", buy, store_result=True)
        await monque.start()
        print("ready", flush=True)
        await asyncio.Event().wait()


asyncio.run(main())
