"""Steps, waits and signals of a job in random order, against a model of what must become of them.

Two instances claim the job, do steps, wait, receive, fail, die, and go on with claims that they have lost;
anybody signals it at any moment, and an operator cancels it, takes it back and lets it run. After every
operation the document must be what the model says: no signal is lost or received twice, a run that lost its
claim writes nothing, and the end of a wait stays what it was. See `test_stateful.py` for the rest of a job.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from pymongo import AsyncMongoClient, ReturnDocument
from pymongo.asynchronous.collection import AsyncCollection

from monque import JobStateError, Monque, Options
from monque._engine.decide import Outcome, decide
from monque._engine.recovery import recover
from monque._store.document import PARKED, Claim, Document
from monque._store.flows import with_received
from monque._store.settle import LOST, Settled, end_wait, record_done
from monque._store.transitions import run
from monque._store.transitions.flows import Waiting
from monque._store.transitions.signals import receive
from monque.embedded import EmbeddedMongo
from support.clocks import ago, ahead, now
from support.invariants import violations
from support.jobs import document
from support.scale import at_scale

EXAMPLES, STEPS = at_scale(60, 12), 40
HOUR = timedelta(hours=1)
MOST = 3
OPTIONS = Options(
    trends=None, register=False, max_retries=MOST, base_retry_interval=HOUR, change_streams=False
)
# What the examples must have met, all of it: otherwise they show less than they seem to.
EVERYTHING = [
    *(f"a signal to a {state} job" for state in ("pending", "processing", "finished", "waiting")),
    *("a known id", "a wait that a signal has ended before it began", "a wait without a timeout"),
    *("a wait with a timeout", "a wait that goes on", "no signal", "a timeout", "a signal at the timeout"),
    *("received before the wait", "received after the wait", "a sleep", "a step", "a failure after a step"),
    *(f"{what} of a lost claim" for what in ("a step", "a wait", "a receive", "an end")),
    *("the last failure", "a crash after a step", "the last crash", "an end that removes signals"),
    *("a cancel that removes signals", "a retry that keeps signals", "a retry from the start"),
    *("a wait that was moved", "a wait that cannot be moved"),
]
instances = st.sampled_from(["a", "b"])
signal_names = st.sampled_from(["go", "stop"])
picks = st.integers(0, 3)
F = TypeVar("F", bound=Callable[..., None])


@dataclass(frozen=True)
class Entry:
    """A step or a wait."""

    name: str
    kind: str
    signal: str | None = None
    value: Any = ...
    id: str | None = None
    is_late: bool | None = None
    """Whether its time has come; None if it has none."""
    is_over: bool = False

    def shows(self) -> tuple[Any, ...]:
        return self.name, self.kind, self.value, self.id, self.is_over


@dataclass
class Model:
    """What is true of the job."""

    status: str = "pending"
    is_due: bool = True
    steps: dict[str, Entry] = field(default_factory=dict)
    signals: list[tuple[str, int, str | None]] = field(default_factory=list)
    waits_for: tuple[str, str | None] | None = None
    waits_in: str | None = None
    """The entry of its wait."""
    fails: int = 0
    crashes: int = 0
    attempt: int = 0

    @property
    def open_wait(self) -> Entry | None:
        waits = (each for each in self.steps.values() if each.kind == "signal" and not each.is_over)
        return next(waits, None)

    @property
    def ids(self) -> set[str | None]:
        return {known for *_, known in self.signals} | {each.id for each in self.steps.values()}

    def add(self, entry: Entry) -> None:
        self.fails = self.fails if entry.name in self.steps else 0
        self.steps[entry.name] = entry

    def leave(self, status: str, *, is_due: bool = True, hears: bool = False) -> None:
        self.status, self.is_due, self.waits_for, self.waits_in = status, is_due, None, None
        self.signals = [] if hears else self.signals


OPERATIONS: list[st.SearchStrategy[tuple[str, dict[str, Any]]]] = []


def operation(**arguments: st.SearchStrategy[Any]) -> Callable[[F], F]:
    """One of the operations that may come next, with its arguments."""

    def add(method: F) -> F:
        OPERATIONS.append(st.tuples(st.just(method.__name__), st.fixed_dictionaries(arguments)))
        return method

    return add


class World:
    """What all examples share: one collection, and two instances that never start."""

    def __init__(self, uri: str) -> None:
        self.runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self.happened: Counter[str] = Counter()
        self.runner.run(self._open(uri))

    async def _open(self, uri: str) -> None:
        self.client: AsyncMongoClient[Document] = AsyncMongoClient(uri, tz_aware=True)
        database = self.client[f"flows_{uuid.uuid4().hex[:8]}"]
        self.collection: AsyncCollection[Document] = database["monque_jobs"]
        self.monques = {
            each: await Monque(database, options=replace(OPTIONS, instance_id=each)).open() for each in "ab"
        }

    def close(self) -> None:
        self.runner.run(self._close())
        self.runner.close()

    async def _close(self) -> None:
        await self.client.drop_database(self.collection.database.name)
        for monque in self.monques.values():
            await monque.close()
        await self.client.close()


class Flows(RuleBasedStateMachine):
    """All that happens to a job with steps."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world, self.run, self.collection = world, world.runner.run, world.collection
        self.happened = world.happened
        self.numbers = itertools.count(1)
        self.begin()

    def begin(self) -> None:
        """Store a job, and forget the one before."""
        self.run(self.collection.delete_many({}))
        job = document(nextRunAt=ago(minutes=5))
        self.id, self.model, self.claims = job["_id"], Model(), list[Claim]()
        self.run(self.collection.insert_one(job))

    # One rule that chooses what to do: of a rule for each, hypothesis leaves out half in every example.
    @rule(step=st.deferred(lambda: st.one_of(OPERATIONS)))
    def act(self, step: tuple[str, dict[str, Any]]) -> None:
        name, arguments = step
        getattr(self, name)(**arguments)

    @operation()
    def begin_anew(self) -> None:
        if self.model.status == "completed":
            self.begin()

    # Anybody

    @operation(name=signal_names, known=st.sampled_from([None, None, "1", "2"]), instance=instances)
    def signal(self, name: str, known: str | None, instance: str) -> None:
        model, value = self.model, next(self.numbers)
        is_active = model.status in ("pending", "processing")
        sent = self.run(self.world.monques[instance].signal(self.id, name, value, id=known))
        assert sent is is_active
        if not is_active:
            self.happened["a signal to a finished job"] += 1
        elif known is not None and known in model.ids:
            self.happened["a known id"] += 1
        else:
            model.signals.append((name, value, known))
            if model.waits_for == ("signal", name):
                model.leave("pending")
                self.happened["a signal to a waiting job"] += 1
            self.happened[f"a signal to a {model.status} job"] += 1

    # Runs

    @operation(instance=instances)
    def claim(self, instance: str) -> None:
        change = run.claim(instance_id=instance, heartbeat_interval=timedelta(seconds=30))
        claimed = self.run(
            self.collection.find_one_and_update(
                {"_id": self.id, **change.when}, change.then, return_document=ReturnDocument.AFTER
            )
        )
        assert (claimed is not None) == (self.model.status == "pending" and self.model.is_due)
        if claimed is not None:
            self.model.leave("processing")
            self.model.attempt += 1
            self.claims.append(Claim.of_read(claimed))

    def _holds(self, claim: Claim) -> bool:
        return self.model.status == "processing" and claim.attempt == self.model.attempt

    def _chosen(self, pick: int) -> Claim | None:
        """The newest claim, or an older one, which is lost. A job that is due is claimed first."""
        if self.model.status == "pending" and self.model.is_due:
            self.claim("ab"[pick % 2])
        return self.claims[max(-1 - pick // 2, -len(self.claims))] if self.claims else None

    @operation(pick=picks, again=st.booleans())
    def step(self, pick: int, again: bool) -> None:
        if (claim := self._chosen(pick)) is None:
            return
        number, holds = next(self.numbers), self._holds(claim)
        entry = {"n": f"step-{number}", "k": "step", "at": now(), "ms": 1, "v": number}
        for _ in range(1 + again):  # the first answer may be lost
            assert self.run(record_done(self.collection, claim, [entry])) is holds
        if not holds:
            self.happened["a step of a lost claim"] += 1
            return
        self.claims[self.claims.index(claim)] = claim.with_steps([entry])
        self.model.add(Entry(entry["n"], "step", value=number))
        self.happened["a step"] += 1

    @operation(pick=picks)
    def sleep(self, pick: int) -> None:
        name = f"sleep-{next(self.numbers)}"
        if self._wait(pick, Waiting(name=name, kind="sleep", delay=3_600_000)):
            self.model.add(Entry(name, "sleep", is_late=False))
            self.model.leave("pending", is_due=False)
            self.model.waits_for, self.model.waits_in = ("time", None), name
            self.happened["a sleep"] += 1

    @operation(pick=picks, signal=signal_names, limited=st.booleans())
    def wait(self, pick: int, signal: str, limited: bool) -> None:
        """Wait for a signal, or go on with the wait that there is."""
        there, model = self.model.open_wait, self.model
        entry = there or Entry(
            f"wait-{next(self.numbers)}", "signal", signal, is_late=False if limited else None
        )
        if entry.is_late or entry.signal is None:
            return
        until = None
        if there is not None and entry.is_late is False:
            stored = self.run(self.collection.find_one({"_id": self.id})) or {}
            until = next(each["until"] for each in stored["steps"] if each["n"] == entry.name)
        delay = 3_600_000 if there is None and limited else None
        when = {"is_new": there is None, "delay": delay, "until": until}
        if not self._wait(pick, Waiting(name=entry.name, kind="signal", signal=entry.signal, **when)):
            return
        model.add(entry)
        is_there = any(name == entry.signal for name, *_ in model.signals)
        model.leave("pending", is_due=is_there)
        if not is_there:
            model.waits_for, model.waits_in = ("signal", entry.signal), entry.name
        self.happened["a wait that goes on"] += there is not None
        self.happened["a wait that a signal has ended before it began"] += is_there
        self.happened[f"a wait {'without' if entry.is_late is None else 'with'} a timeout"] += 1

    def _wait(self, pick: int, wait: Waiting) -> bool:
        """Suspend the run; whether it held its claim."""
        if (claim := self._chosen(pick)) is None:
            return False
        return self._settle(claim, Outcome(0.001, asyncio.CancelledError(), "waiting", wait=wait), "a wait")

    @operation(pick=picks, signal=signal_names, again=st.booleans())
    def receive(self, pick: int, signal: str, again: bool) -> None:
        """Receive a signal, in the wait that there is or without one."""
        if (claim := self._chosen(pick)) is None:
            return
        model, holds, there = self.model, self._holds(claim), self.model.open_wait
        entry = there or Entry(f"wait-{next(self.numbers)}", "signal", signal)
        assert entry.signal is not None
        how = {"is_new": there is None, "is_late": entry.is_late is True}
        change = receive(claim, entry.name, entry.signal, **how)
        answers = [self.run(end_wait(self.collection, claim, entry.name, change)) for _ in range(1 + again)]
        assert answers[0] == answers[-1]  # the first answer may be lost
        if not holds:
            assert answers[0] is False
            self.happened["a receive of a lost claim"] += 1
            return
        taken = next((each for each in model.signals if each[0] == entry.signal), None)
        if taken is None and not entry.is_late:
            assert answers[0] is True
            self.happened["no signal"] += 1
            return
        assert isinstance(answers[0], dict)
        if taken is None:
            model.add(replace(entry, is_over=True))
            self.happened["a timeout"] += 1
        else:
            model.signals.remove(taken)
            model.add(replace(entry, value=taken[1], id=taken[2], is_over=True))
            self.happened["a signal at the timeout"] += bool(entry.is_late)
            self.happened[f"received {'before' if there is None else 'after'} the wait"] += 1
        self.claims[self.claims.index(claim)] = with_received(claim, answers[0], entry.signal)

    @operation(pick=picks, end=st.sampled_from(["success", "failure", "failure", "release", "release"]))
    def end(self, pick: int, end: str) -> None:
        if (claim := self._chosen(pick)) is None:
            return
        model, had = self.model, bool(self.model.signals)
        outcomes = {
            "success": Outcome(0.001),
            "failure": Outcome(0.001, ValueError("no")),
            "release": Outcome(0.001, asyncio.CancelledError(), "shutdown"),
        }
        if not self._settle(claim, outcomes[end], "an end"):
            return
        if end == "release":
            model.leave("pending")
        elif end == "failure":
            self.happened["a failure after a step"] += bool(model.steps)
            model.fails += 1
            model.leave("failed" if model.fails >= MOST else "pending", is_due=False)
            self.happened["the last failure"] += model.status == "failed"
        else:
            hears = claim.attempt > 1 and not {"signals", "steps"}.isdisjoint(claim.document)
            hears = hears or bool(model.steps)
            model.leave("completed", hears=hears)
            model.crashes = 0
            self.happened["an end that removes signals"] += had and hears

    def _settle(self, claim: Claim, outcome: Outcome, what: str) -> bool:
        """Settle a run as the engine does; whether it held its claim."""
        holds = self._holds(claim)
        transition = decide(claim, outcome, OPTIONS, now)
        if claim.attempt > 1 or "steps" in claim.document:
            transition = transition.without_wait(claim)
        settler = self.world.monques["a"]._opening.anywhere().context.store.settler
        answer = self.run(settler.settle(claim, transition))
        assert isinstance(answer, Settled) if holds else answer is LOST
        if holds:
            self.claims.remove(claim)
        self.happened[f"{what} of a lost claim"] += not holds
        return holds

    @operation(instance=instances)
    def die(self, instance: str) -> None:
        """The owner dies, and somebody recovers the job."""
        if self.model.status != "processing":
            return
        long_ago = {"lastHeartbeat": ago(hours=1), "lockedAt": ago(hours=1)}
        self.run(self.collection.update_one({"_id": self.id}, {"$set": long_ago}))
        self.run(recover(self.world.monques[instance]._opening.anywhere().context))
        self.model.crashes += 1
        self.model.leave("failed" if self.model.crashes >= MOST else "pending")
        self.happened["the last crash"] += self.model.status == "failed"
        self.happened["a crash after a step"] += bool(self.model.steps)

    @operation()
    def let_time_pass(self) -> None:
        """Whatever the job waits for by a time has come."""
        stored = self.run(self.collection.find_one({"_id": self.id})) or {}
        if self.model.status != "pending" or self.model.is_due or stored["nextRunAt"] == PARKED:
            return
        came = {"$mergeObjects": ["$$this", {"until": ago(hours=2)}]}
        moved = {"$cond": [{"$eq": ["$$this.until", "$nextRunAt"]}, came, "$$this"]}
        steps = {"$map": {"input": {"$ifNull": ["$steps", []]}, "in": moved}}
        fields = {"nextRunAt": ago(hours=2), **({"steps": steps} if "steps" in stored else {})}
        self.run(self.collection.update_one({"_id": self.id}, [{"$set": fields}]))
        self._comes()

    def _comes(self) -> None:
        """The time of a wait has come; the job waits still, until somebody runs it."""
        model = self.model
        model.is_due = True
        if model.waits_in is not None:
            model.steps[model.waits_in] = replace(model.steps[model.waits_in], is_late=True)

    # Operators

    @operation(instance=instances)
    def cancel(self, instance: str) -> None:
        call = self.world.monques[instance].cancel_job(self.id)
        if self.model.status not in ("pending", "cancelled"):
            self._refused(call)
            return
        self.run(call)
        self.happened["a cancel that removes signals"] += bool(self.model.signals)
        self.model.leave("cancelled", hears=True)

    @operation(instance=instances, from_start=st.sampled_from([False, False, True]))
    def retry(self, instance: str, from_start: bool) -> None:
        call, model = self.world.monques[instance].retry_job(self.id, from_start=from_start), self.model
        if model.status not in ("failed", "cancelled"):
            self._refused(call)
            return
        self.run(call)
        model.leave("pending", hears=from_start)
        model.fails = model.crashes = 0
        if from_start:
            self.happened["a retry from the start"] += bool(model.steps)
            model.steps = {}
        self.happened["a retry that keeps signals"] += bool(model.signals)

    @operation(instance=instances)
    def run_now(self, instance: str) -> None:
        call, model = self.world.monques[instance].run_now(self.id), self.model
        waits = model.steps[model.waits_in] if model.waits_in is not None else None
        if model.status != "pending" or (waits is not None and waits.is_late is None):
            self._refused(call)
            self.happened["a wait that cannot be moved"] += waits is not None
            return
        self.run(call)
        self.happened["a wait that was moved"] += waits is not None and not model.is_due
        self._comes()

    def _refused(self, call: Coroutine[Any, Any, Any]) -> None:
        with pytest.raises(JobStateError):
            self.run(call)

    @invariant()
    def check(self) -> None:
        """The document is what the model says."""
        stored, model = self.run(self.collection.find_one({"_id": self.id})), self.model
        assert stored is not None
        assert violations([stored]) == []
        signals = [(each["n"], each["v"], each.get("id")) for each in stored.get("signals", ())]
        steps = [
            (each["n"], each["k"], each.get("v", ...), each.get("id"), "over" in each)
            for each in stored.get("steps", ())
        ]
        counts = stored["status"], stored["failCount"], stored.get("crashCount", 0)
        assert counts == (model.status, model.fails, model.crashes)
        assert signals == model.signals
        assert steps == [entry.shows() for entry in model.steps.values()]
        if model.status == "pending":
            assert (stored["nextRunAt"] < ahead(minutes=1)) == model.is_due
            parked = stored.get("parked")
            assert (parked and (parked["why"], parked.get("key"))) == model.waits_for


def go_the_rare_ways(flows: Flows) -> None:
    """In random order these come too seldom."""
    steps: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
        (flows.signal, ("stop", None, "a")),
        *[(flows.end, (0, "failure")), (flows.let_time_pass, ())] * MOST,
        (flows.retry, ("a", False)),
        (flows.wait, (0, "go", False)),
        (flows.run_now, ("b",)),
        (flows.signal, ("go", "1", "b")),
        (flows.receive, (0, "go", True)),
        (flows.signal, ("go", "1", "b")),
        *[(flows.wait, (0, "go", True)), (flows.let_time_pass, ()), (flows.claim, ("a",))],
        (flows.signal, ("go", None, "b")),
        *[(flows.receive, (0, signal, True)) for signal in ("go", "stop")],
        *[(flows.signal, ("stop", None, "b")), (flows.end, (0, "success"))],
    ]
    for act, arguments in steps:
        act(*arguments)
        flows.check()


def test_steps_waits_and_signals_in_any_order_are_what_the_model_says(server: EmbeddedMongo) -> None:
    world = World(server.uri)
    try:
        how = settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        )
        go_the_rare_ways(Flows(world))
        run_state_machine_as_test(lambda: Flows(world), settings=how)
        missing = [each for each in EVERYTHING if not world.happened[each]]
        assert not missing, missing
    finally:
        world.close()
