"""Agents of Pydantic AI whose model and tool calls are steps of a job; `pip install "pymonque[pydantic-ai]"`.

It stands on the public interface of Pydantic AI for engines of durable execution. What a step returned is
stored with its job as JSON text: keys of JSON objects may be any text, those of documents may not.
"""

from __future__ import annotations

import json
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

try:
    from pydantic_ai.capabilities import WrapRunHandler
    from pydantic_ai.durable_exec import (
        JSON_CODEC,
        BaseDurabilityCapability,
        DurabilityEngineSpec,
        DurableOperationBackend,
        DurableOperationId,
        JournalCallableOperationBackend,
        RoleBasedOperationConfig,
        conversation_id_from_run_id,
    )
    from pydantic_ai.run import AgentRunResult
    from pydantic_ai.tools import AgentDepsT, RunContext
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("pydantic_ai"):
        raise
    raise ModuleNotFoundError(
        "monque.pydantic_ai needs pydantic-ai-slim; install it with: pip install 'pymonque[pydantic-ai]'",
        name=error.name,
    ) from error

from monque import Job, current_job

__all__ = ["MonqueDurability"]

# The run of an agent that goes on here: steps of runs beside it, in a `gather`, must not share its count.
_run: ContextVar[str] = ContextVar("monque_agent_run", default="1")

# Whether a step of an agent goes on here: an agent that a tool calls is part of the step of that tool.
_is_in_step: ContextVar[bool] = ContextVar("monque_agent_step", default=False)

# How often each name was used in one run of a job, by the identity of its `Job`: a later run begins anew.
_used: dict[int, Counter[str]] = {}


def _job() -> Job[Any] | None:
    """The job whose handler runs here; None in a step of one of its agents."""
    return None if _is_in_step.get() else current_job()


def _count(job: Job[Any], name: str) -> int:
    key = id(job)
    if key not in _used:
        _used[key] = Counter()
        weakref.finalize(job, _used.pop, key, None)
    _used[key][name] += 1
    return _used[key][name]


class MonqueDurability(BaseDurabilityCapability[AgentDepsT]):
    """A capability of an agent: in a handler, each call of its model and its tools is a step of the job.

    A run that was cut off goes on after its last step: no answer of the model is paid for twice, and no tool
    that has returned is called again. Outside of a job the agent runs as ever. In a job its tools are called
    one after the other. The agent needs a name, and its toolsets ids: steps are named after them.

    Examples:
        >>> agent = Agent("openai:gpt-5", name="support", capabilities=[MonqueDurability()])
        >>> @monque.worker("answer")
        ... async def answer(job: Job[str]) -> str:
        ...     return (await agent.run(job.data)).output
    """

    engine_spec = DurabilityEngineSpec(
        engine_name="Monque",
        durable_unit_noun="step",
        durable_container_noun="job",
        codec=JSON_CODEC,
        # A connection is made in a step, and closed with the run.
        toolset_lifecycles={
            "function": "enter-always",
            "mcp": "enter-in-durable-unit",
            "dynamic": "enter-never",
        },
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        sequential_tools_in_durable_context=True,
    )

    @property
    def in_durable_context(self) -> bool:
        """True in a handler, and not in a step of it: the engine asks before each call."""
        return _job() is not None

    def get_default_run_id(self) -> str | None:
        """The id of a run of the agent: the same when the job runs again."""
        if (job := _job()) is None:
            return None
        return f"{job.id}:{_count(job, f'run of {self.name}')}"

    def get_default_conversation_id(self, run_id: str) -> str | None:
        """The id of a conversation that has none: the same when the job runs again."""
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    async def get_run_start_time(self, run_id: str) -> datetime | None:
        """The time at which a run of the agent began first; it is a step, for limits of its time."""
        if (job := _job()) is None:
            return None
        label = f"{self.name}__run_start_time:{_key(job, run_id)}"
        return await job.step(f"{label}.{_count(job, label)}", _now)

    async def wrap_run(self, ctx: RunContext[AgentDepsT], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        """Run the agent, and know meanwhile which of its runs this is."""
        job = _job()
        if job is None or ctx.run_id is None:
            return await super().wrap_run(ctx, handler=handler)
        token = _run.set(_key(job, ctx.run_id))
        try:
            return await super().wrap_run(ctx, handler=handler)
        finally:
            _run.reset(token)

    def get_durable_operation_backend(self) -> DurableOperationBackend[None]:
        """Let each operation of the agent be a step."""
        return _Steps(
            agent_name=self.name,
            default_model_id=self.default_model_id,
            config=RoleBasedOperationConfig(model=None, event=None, capability=None, tool=None),
        )


class _Steps(JournalCallableOperationBackend[None]):
    """Runs each operation of an agent as a step of the job."""

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,  # noqa: ARG002 - the name says it
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],  # noqa: ARG002 - steps go by their names, and these by their order
        config: None,  # noqa: ARG002 - there is nothing to choose
    ) -> object:
        """Run *body*, unless an earlier run of the job has stored what it returned."""
        if (job := _job()) is None:
            return await body()

        async def call() -> str:
            token = _is_in_step.set(True)
            try:
                return json.dumps(await body())
            finally:
                _is_in_step.reset(token)

        label = f"{name}:{_run.get()}"
        return json.loads(await job.step(f"{label}.{_count(job, label)}", call))


async def _now() -> datetime:
    return datetime.now(UTC)


def _key(job: Job[Any], run_id: str) -> str:
    """The id of an agent's run as part of a step's name: its number, unless the caller chose an id."""
    return run_id.removeprefix(f"{job.id}:")
