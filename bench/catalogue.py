"""The one list of scenarios, for `make bench` and `make bench-compare`.

`make bench-compare` runs this list on the library of another commit too. So a scenario uses public names
only, and asks inside its function for a name that the library did not always have.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from fnmatch import fnmatchcase

from bench import (
    calling,
    computing,
    draining,
    flows,
    footprint,
    latency,
    plain,
    steps,
    storing,
    urgent,
    waiting,
    web,
)
from bench.scenario import Round, Scenario, Subject, Target, rounds_of
from bench.stage import Stage

# Rounds take half a second to three seconds. In shorter ones a single interruption shows; during longer ones
# the machine has more time to change its speed.

# A drain of half as many jobs is over within a second, and its start is a noticeable part of that. Twice as
# many take twice as long and tell the same.
_JOBS = 20_000

# Jobs that fail once. With a third, those beside them that succeed take so few steps of the CPU's clock that
# the ratio of a pair says little; twice as many tell the same.
_FAILING = 10_000

# Future jobs of one name. A tenth would fit into a few polls; ten times as many take minutes to store.
_FUTURE = 300_000

# Sleeping jobs of one name. A tenth would not show a read of all of them; ten times as many tell the same.
_SLEEPING = 100_000

# Completed and future jobs, in a collection that is much larger than what is drained. Half of them still fit
# into the caches of a small server; twice as many take twice the minutes to store.
_OTHERS = 2_000_000

# A job that one of many processes works off costs the server as much as one that a lone process works off,
# give or take 15 %. Half of that is within the noise; at twice of it contention would go unnoticed.
_SAME_SERVER_CPU = Target(of="server", at_least=1 / 1.15, at_most=1.15)


class UnknownScenarioError(Exception):
    """No scenario has this name."""


def choose(only: Sequence[str] = (), *, full: bool = False) -> list[Scenario]:
    """The scenarios named or matched by *only*; without it the default ones, or all if *full*."""
    for pattern in only:
        if not any(fnmatchcase(scenario.name, pattern) for scenario in ALL):
            names = ", ".join(scenario.name for scenario in ALL)
            raise UnknownScenarioError(f"there is no scenario {pattern!r}; there are {names}")
    if only:
        return [each for each in ALL if any(fnmatchcase(each.name, pattern) for pattern in only)]
    return [scenario for scenario in ALL if full or scenario.default]


def _drain(count: int = _JOBS, **settings: object) -> Subject:
    return rounds_of(draining.drain, count=count, **settings)


def _drain_failing(**settings: object) -> Subject:
    retry_soon = timedelta(milliseconds=1)
    return _drain(
        _FAILING,
        handler=draining.fail_once,
        worker_concurrency=100,
        base_retry_interval=retry_soon,
        **settings,
    )


def _batches(batch: int) -> Subject:
    return rounds_of(plain.overlapped, count=_JOBS, batch=batch)


def _processes(number: int, *, count: int = _JOBS, **settings: int) -> Subject:
    return rounds_of(draining.drain_by_processes, count=count, processes=number, **settings)


def _slow_processes(number: int) -> Subject:
    return _processes(number, milliseconds=10, concurrency=50)


def _injected(handler: str) -> Subject:
    @asynccontextmanager
    async def subject(stage: Stage) -> AsyncIterator[Round]:
        # Here, not above: a library without `monque.fastapi` can still run everything else.
        from bench.injection import injected

        yield lambda: injected(stage, 2_000, handler=handler)

    return subject


DRAINING = [
    Scenario(
        name="drain",
        title="drain, default options",
        measure=_drain(),
        twin=_batches(1_000),
        beside="plain PyMongo, overlapped batches of 1,000",
        targets=(Target(at_least=0.75),),
        default=True,
    ),
    Scenario(
        name="drain-plain-loop",
        title="drain, default options",
        measure=_drain(5_000),
        twin=rounds_of(plain.one_by_one, count=200),
        beside="plain PyMongo, claim one, complete it, claim the next",
        targets=(Target(at_least=8),),
        default=True,
    ),
    *(
        Scenario(
            name=f"drain-tuned-{concurrency}" if concurrency != 1_000 else "drain-tuned",
            title=f"drain, worker_concurrency={concurrency}",
            measure=_drain(worker_concurrency=concurrency),
            twin=_batches(concurrency),
            beside="plain PyMongo, overlapped batches of that size",
            targets=(Target(at_least=0.8),),
        )
        for concurrency in (100, 500, 1_000)
    ),
    Scenario(
        name="drain-10-names",
        title="drain, 10 names",
        measure=_drain(names=10),
        twin=_drain(),
        beside="one name",
        targets=(Target(at_least=1 / 1.3),),
    ),
    Scenario(
        name="drain-names",
        title="drain, 500 names",
        measure=_drain(10_000, names=500),
        twin=_drain(10_000),
        beside="one name",
        targets=(Target(at_least=1 / 1.3),),
        default=True,
    ),
    Scenario(
        name="drain-failing",
        title="drain, each job fails once",
        measure=_drain_failing(),
        twin=_drain(_FAILING, worker_concurrency=100),
        beside="jobs that succeed",
        # A job has one failing run and one that succeeds: a failing run may cost 2.8 of a succeeding one.
        targets=(Target(at_least=0.36), Target(of="client", at_most=1 + 2.8)),
        default=True,
    ),
    Scenario(
        name="drain-fields",
        title="drain, handlers that read id, attempt and name",
        measure=_drain(handler=draining.read_fields),
        twin=_drain(),
        beside="handlers that read nothing",
        targets=(Target(of="client", at_most=1.06),),  # 2 µs of 33
    ),
    Scenario(
        name="drain-history",
        title="drain, each job fails once and remembers it",
        measure=_drain_failing(),
        twin=_drain_failing(attempt_history=0),
        beside="the same without a history",
    ),
    Scenario(
        name="drain-results",
        title="drain, jobs whose results are stored",
        measure=_drain(10_000, handler=draining.answer, store_result=True),
        twin=_drain(10_000, handler=draining.answer),
        beside="the same jobs without results",
        targets=(Target(at_least=0.7),),
    ),
    Scenario(
        name="drain-failures",
        title="drain, with the use failures",
        measure=_drain(uses=("failures",)),
        twin=_drain(),
        beside="without its index",
        targets=(Target(at_least=0.95),),
    ),
    Scenario(
        name="drain-trends",
        title="drain, worker_concurrency=1000, with trends and the register",
        measure=_drain(worker_concurrency=1_000),
        twin=_drain(worker_concurrency=1_000, trends=None, register=False),
        beside="the same without them",
        targets=(Target(at_least=0.98),),
    ),
    Scenario(
        name="drain-counted",
        title="drain, 50,000 jobs that the trends must count to the last one",
        measure=rounds_of(draining.drain_counted, count=50_000),
    ),
    Scenario(
        name="drain-blocking",
        title="drain, `def` handlers",
        measure=_drain(5_000, handler=draining.nothing_blocking),
        twin=_drain(5_000),
        beside="`async def` handlers",
    ),
    Scenario(
        name="drain-recurring",
        title="drain, recurring jobs",
        measure=rounds_of(draining.drain_recurring, count=1_000),
        twin=_drain(1_000),
        beside="one-off jobs",
    ),
    Scenario(
        name="drain-indexes",
        title="drain, listing_indexes=True",
        measure=_drain(listing_indexes=True),
        twin=_drain(),
        beside="without these indexes",
    ),
    Scenario(
        name="drain-process",
        title="drain, 1 process",
        measure=_processes(1),
        twin=_batches(1_000),
        beside="plain PyMongo, overlapped batches of 1,000",
    ),
    *(
        Scenario(
            name=f"drain-{number}-processes",
            title=f"drain, {number} processes",
            # As many for each process as for a lone one: each begins with small claims.
            measure=_processes(number, count=number * _JOBS),
            twin=_processes(1, count=number * _JOBS),
            beside="one process",
            targets=(_SAME_SERVER_CPU, *([Target(of="client", at_most=1.2)] if number == 8 else [])),
        )
        for number in (2, 4, 8)
    ),
    Scenario(
        name="drain-10ms",
        title="drain, 10 ms handlers, concurrency 50, 1 process",
        measure=_slow_processes(1),
        twin=_processes(1),
        beside="one process, handlers that do nothing",
    ),
    *(
        Scenario(
            name=f"drain-10ms-{number}-processes",
            title=f"drain, 10 ms handlers, concurrency 50, {number} processes",
            measure=_slow_processes(number),
            twin=_slow_processes(1),
            beside="one process",
        )
        for number in (2, 4, 8)
    ),
    Scenario(
        name="drain-instances",
        title="drain, 10 instances",
        measure=rounds_of(draining.drain_by_instances, count=_JOBS, instances=10),
        twin=_drain(),
        beside="one instance",
        targets=(Target(at_least=0.8),),
    ),
    Scenario(
        name="conflicts",
        title="write conflicts of 10 instances",
        measure=rounds_of(draining.conflicts, count=_JOBS, instances=10),
        targets=(Target(at_most=0.02, absolute=True),),
    ),
    *(
        Scenario(
            name=f"keys-{kind}",
            title=f"index keys examined by {kind}",
            measure=rounds_of(draining.keys, count=5_000, of=kind),
            targets=(Target(at_most=2, absolute=True),),
        )
        for kind in ("polls", "claims")
    ),
    Scenario(
        name="growth",
        title=f"drain beside {_OTHERS:,} other jobs",
        measure=draining.grown(count=_JOBS, others=_OTHERS),
        twin=_drain(),
        beside="an empty collection",
        targets=(Target(at_least=0.85),),
    ),
]

PICKING_UP = [
    Scenario(
        name="pick-up",
        title="pick-up, same instance, p50",
        measure=latency.pick_up(count=100, by="same instance"),
        twin=rounds_of(plain.insert_and_claim, count=100),
        beside="plain PyMongo, one insert and one claim",
        targets=(Target(at_most=1.5),),
        default=True,
    ),
    Scenario(
        name="pick-up-other",
        title="pick-up, other instance, p50",
        measure=latency.pick_up(count=100, by="other instance"),
        twin=rounds_of(plain.insert_event_and_claim, count=100),
        beside="plain PyMongo, insert, change event, claim",
        targets=(Target(at_most=1.5), Target(of="tail", at_most=5, absolute=True)),
        default=True,
    ),
    Scenario(
        name="pick-up-process",
        title="pick-up, other process, p50",
        measure=latency.pick_up(count=100, by="other process"),
        twin=plain.claim_on_event(count=100),
        beside="plain PyMongo, change event, claim",
        targets=(Target(at_most=1.05),),
    ),
    Scenario(
        name="pick-up-future",
        title=f"pick-up, same instance, {_FUTURE:,} future jobs, p50",
        measure=latency.pick_up(count=100, by="same instance", future=_FUTURE),
        twin=latency.pick_up(count=100, by="same instance"),
        beside="without future jobs",
        targets=(Target(at_most=1.1),),
        default=True,
    ),
    Scenario(
        name="pick-up-future-process",
        title=f"pick-up, other process, {_FUTURE:,} future jobs, p50",
        measure=latency.pick_up(count=100, by="other process", future=_FUTURE),
        twin=latency.pick_up(count=100, by="other process"),
        beside="without future jobs",
        targets=(Target(at_most=1.1),),
        default=True,
    ),
    Scenario(
        name="pick-up-load",
        title="pick-up, other instance, at 500 jobs/s, p50",
        measure=rounds_of(latency.steady_load, count=1_500, rate=500),
        twin=latency.pick_up(count=100, by="other instance"),
        beside="one job after another",
        default=True,
    ),
    Scenario(
        name="pick-up-polled",
        title="pick-up, other instance, polling each 100 ms, p50",
        measure=latency.pick_up(
            count=30, by="other instance", change_streams=False, poll_interval=timedelta(milliseconds=100)
        ),
    ),
    Scenario(
        name="lateness",
        title="lateness of jobs with a time, p50",
        measure=rounds_of(latency.lateness, count=100),
        targets=(Target(at_most=100, absolute=True), Target(of="p99", at_most=100, absolute=True)),
    ),
]

WAITING = [
    Scenario(
        name="wait-for",
        title="from the end of a job of 50 ms to that of wait_for, same instance, p50",
        measure=waiting.told(count=30, same=True),
        targets=(Target(at_most=25, absolute=True),),
    ),
    Scenario(
        name="wait-for-other",
        title="from the end of a job of 50 ms to that of wait_for, other instance, p50",
        measure=waiting.told(count=30, same=False),
        targets=(Target(at_most=50, absolute=True),),
    ),
]

# Behind so many normal jobs, an urgent one starts within this many milliseconds.
_BACKLOG = 100_000
_URGENT_WITHIN = Target(at_most=200, absolute=True)

URGENT = [
    Scenario(
        name=name,
        title=f"an urgent job among {_BACKLOG:,}, {where}, p50",
        measure=urgent.urgent_among(
            backlog=_BACKLOG, count=20, instances=instances, other_process=other_process
        ),
        targets=(_URGENT_WITHIN, Target(of="p99", at_most=200, absolute=True)),
    )
    for name, where, instances, other_process in (
        ("urgent", "same process", 1, False),
        ("urgent-process", "other process", 1, True),
        ("urgent-10", "same process, 10 instances", 10, False),
        ("urgent-process-10", "other process, 10 instances", 10, True),
    )
]

_ANSWERS: list[tuple[str, calling.Answer, str]] = [
    ("replace", "replaced", "replacing what waits"),
    ("again", "again", "noted in a running job"),
    ("throttled", "throttled", "throttled within a window"),
]

STORING = [
    Scenario(
        name="enqueue",
        title="enqueue, one after another",
        measure=storing.enqueued(count=200),
        twin=rounds_of(plain.insert_one, count=200),
        beside="plain PyMongo, insert_one",
        targets=(Target(at_least=0.9),),
        default=True,
    ),
    Scenario(
        name="enqueue-tasks",
        title="enqueue, 50 tasks",
        measure=storing.enqueued(count=5_000, tasks=50),
        twin=rounds_of(plain.insert_one, count=1_000, tasks=50),
        beside="plain PyMongo, insert_one, 50 tasks",
        targets=(Target(at_least=5),),
        default=True,
    ),
    Scenario(
        name="enqueue-many",
        title="enqueue_many, 20,000",
        measure=rounds_of(storing.enqueue_many, count=20_000),
        twin=rounds_of(plain.insert_many, count=20_000),
        beside="plain PyMongo, insert_many",
        targets=(Target(at_least=0.8),),
        default=True,
    ),
    Scenario(
        name="enqueue-unique",
        title="enqueue with a unique key",
        measure=storing.enqueued(count=200, unique=True),
        twin=rounds_of(plain.upsert, count=200),
        beside="plain PyMongo, upsert",
    ),
    *(
        Scenario(
            name=f"enqueue-{name}",
            title=f"enqueue with a taken key, {title}",
            measure=calling.answered(answer, count=200),
            twin=calling.answered("kept", count=200),
            beside="the job is kept",
        )
        for name, answer, title in _ANSWERS
    ),
    Scenario(
        name="enqueue-indexes",
        title="enqueue_many, listing_indexes=True",
        measure=rounds_of(storing.enqueue_many, count=20_000, listing_indexes=True),
        twin=rounds_of(storing.enqueue_many, count=20_000),
        beside="without these indexes",
    ),
    Scenario(
        name="enqueue-stream",
        title="enqueue_many of a generator, 100,000, return_jobs=False",
        measure=rounds_of(storing.enqueue_stream, count=100_000),
        twin=rounds_of(storing.enqueue_many, count=100_000),
        beside="of a list, with the jobs returned",
        targets=(Target(at_least=1),),
    ),
    Scenario(
        name="enqueue-memory",
        title="memory that enqueue_many of a generator adds, 1,000,000",
        measure=rounds_of(storing.stream_memory, count=1_000_000),
        targets=(Target(at_most=200, absolute=True),),
    ),
]

COMPUTING = [
    Scenario(
        name="compute",
        title="jobs that compute for 50 ms, in two child processes",
        measure=computing.worked_off(count=30, mode="process"),
        twin=computing.worked_off(count=30, mode="thread"),
        beside="in two threads",
        targets=(Target(at_least=1.7),),
        default=True,
    ),
    Scenario(
        name="compute-nothing",
        title="jobs that do nothing, in two child processes",
        measure=computing.worked_off(count=2_000, mode="process", handler=computing.nothing),
        twin=computing.worked_off(count=2_000, mode="thread", handler=computing.nothing),
        beside="in two threads",
    ),
    Scenario(
        name="compute-replaced",
        title="10,000 jobs that do nothing, 100 for each child process",
        measure=computing.worked_off(
            count=10_000, mode="process", handler=computing.nothing, max_jobs_per_child=100
        ),
        twin=computing.worked_off(count=10_000, mode="process", handler=computing.nothing),
        beside="in two children that stay",
    ),
]

HAVING = [
    Scenario(
        name="memory",
        title="memory after 20,000 jobs",
        measure=rounds_of(footprint.memory, count=20_000),
        targets=(Target(at_most=80, absolute=True),),
        default=True,
    ),
    Scenario(
        name="memory-growth",
        title="memory after 100,000 jobs",
        measure=rounds_of(footprint.memory, count=100_000),
        twin=rounds_of(footprint.memory, count=10_000),
        beside="after 10,000",
        targets=(Target(at_most=1.1), Target(at_most=80, absolute=True)),
    ),
    Scenario(
        name="idle",
        title="commands of an idle instance",
        measure=rounds_of(footprint.idle_commands, count=4),
        targets=(Target(at_most=1, absolute=True),),
        default=True,
    ),
    Scenario(
        name="import",
        title="import of Monque",
        measure=rounds_of(footprint.importing, count=5, statement="from monque import Monque"),
        twin=rounds_of(footprint.importing, count=5, statement="import pymongo"),
        beside="import of pymongo",
    ),
    Scenario(
        name="open",
        title="open and close",
        measure=rounds_of(footprint.opening, count=10),
        twin=rounds_of(footprint.pinging, count=10),
        beside="a client and one ping",
    ),
    *(
        Scenario(
            name=f"injection-{name}",
            title=f"injection: {handler}",
            measure=_injected(handler),
            targets=(Target(at_most=20, absolute=True),),
        )
        for name, handler in (
            ("one", "one dependency"),
            ("two", "two, one needs the other"),
            ("yield", "two, one with yield"),
            ("blocking", "two of a def handler, one with yield"),
        )
    ),
]

STEPPING = [
    Scenario(
        name="steps",
        title=f"steps of jobs of {steps.STEPS}, {steps.AT_ONCE} jobs at once",
        measure=rounds_of(steps.drain_steps, count=200),
        twin=rounds_of(steps.drain_five_times, count=200),
        beside="as many plain jobs as there are steps",
    ),
    Scenario(
        name="steps-chain",
        title=f"steps of jobs of {steps.STEPS}, {steps.AT_ONCE} jobs at once",
        measure=rounds_of(steps.drain_steps, count=200),
        twin=rounds_of(steps.drain_chains, count=200),
        beside=f"chains of {steps.STEPS} plain jobs, each of which stores the next one",
    ),
    Scenario(
        name="steps-transaction",
        title=f"jobs of one transaction, {steps.AT_ONCE} at once",
        measure=rounds_of(steps.drain_transactions, count=200),
        twin=rounds_of(steps.plain_transactions, count=200),
        beside="plain PyMongo, as many transactions with the same writes",
    ),
    Scenario(
        name="steps-sleeping",
        title=f"commands of an idle instance beside {_SLEEPING:,} sleeping jobs",
        measure=steps.idle_beside_sleepers(count=10, sleeping=_SLEEPING),
        twin=steps.idle_beside_sleepers(count=10, sleeping=0),
        beside="without sleeping jobs",
    ),
]


def _flow(count: int, **settings: object) -> Subject:
    return rounds_of(flows.drain, count=count, **settings)


def _commands(**settings: object) -> Subject:
    return rounds_of(flows.commands, count=_JOBS, **settings)


# Who does not use a thing does not pay for it.
_SAME_SPEED = (Target(at_least=0.95),)
_SAME_COMMANDS = (Target(at_most=1.05),)

LIMITING = [
    *(
        Scenario(
            name=f"limits-{name}",
            title=f"drain, {title}",
            measure=_flow(count, kind=kind, known=known),
            twin=_flow(count),
            beside="the same jobs without a limit",
        )
        for name, title, count, kind, known in (
            ("name", f"a limit of {flows.AT_ONCE} for the whole name", 10_000, "whole name", False),
            ("rate", "a rate for the whole name that is never reached", 10_000, "rate", False),
            ("key", f"2 of each of {flows.KEYS:,} keys", 5_000, "by key", False),
            ("key-known", f"2 of each of {flows.KEYS:,} keys, known to the producer", 5_000, "by key", True),
            ("full", f"2 of each of {flows.FEW_KEYS} keys", 3_000, "full lines", False),
            (
                "full-known",
                f"2 of each of {flows.FEW_KEYS} keys, known to the producer",
                3_000,
                "full lines",
                True,
            ),
        )
    ),
    Scenario(
        name="limits-beside",
        title="drain, beside a name with a limit",
        measure=_flow(_JOBS, beside="whole name"),
        twin=_flow(_JOBS, beside="plain"),
        beside="a name without one",
        targets=_SAME_SPEED,
    ),
    Scenario(
        name="limits-beside-key",
        title="drain, beside a name with a limit by key",
        measure=_flow(_JOBS, beside="by key"),
        twin=_flow(_JOBS, beside="plain"),
        beside="a name without one",
        targets=_SAME_SPEED,
    ),
    Scenario(
        name="limits-commands",
        title="commands of a drain, beside a name with a limit",
        measure=_commands(beside="by key"),
        twin=_commands(beside="plain"),
        beside="a name without one",
        targets=_SAME_COMMANDS,
    ),
]

BATCHING = [
    Scenario(
        name="batches",
        title="drain, jobs of one batch",
        measure=rounds_of(flows.drain_labelled, count=10_000),
        twin=_flow(10_000),
        beside="the same jobs without a label",
    ),
    Scenario(
        name="batches-many",
        title="drain, jobs of 1,000 batches",
        measure=rounds_of(flows.drain_labelled, count=10_000, labels=1_000),
        twin=_flow(10_000),
        beside="the same jobs without a label",
    ),
    Scenario(
        name="batches-beside",
        title="drain, beside a batch of 1,000 jobs that wait",
        measure=rounds_of(flows.drain_beside_batches, count=_JOBS),
        twin=_flow(_JOBS),
        beside="an empty collection",
        targets=_SAME_SPEED,
    ),
    Scenario(
        name="batches-commands",
        title="commands of a drain, beside a batch of 1,000 jobs that wait",
        measure=_commands(batches=True),
        twin=_commands(),
        beside="an empty collection",
        targets=_SAME_COMMANDS,
    ),
    Scenario(
        name="batches-callback",
        title="from the end of a batch of 5 to the start of what follows, p50",
        measure=flows.called_back(count=30, parts=5),
    ),
    Scenario(
        name="batches-run-jobs",
        title=f"children of parents that wait for {flows.CHILDREN} each",
        measure=rounds_of(flows.drain_families, count=2_000),
        twin=_flow(2_000),
        beside="as many plain jobs as there are children",
    ),
]

KEEPING = [
    Scenario(
        name="keep",
        title="drain, jobs that are removed when they complete",
        measure=_flow(_JOBS, kind="kept"),
        twin=rounds_of(flows.drain_and_prune, count=_JOBS),
        beside="kept, and then pruned",
        targets=(Target(of="server", at_most=0.75),),
    ),
    Scenario(
        name="keep-beside",
        title="drain, beside a name whose jobs are not kept",
        measure=_flow(_JOBS, beside="kept"),
        twin=_flow(_JOBS, beside="plain"),
        beside="a name whose jobs are",
        targets=_SAME_SPEED,
    ),
]

SERVING = [
    Scenario(
        name="web-reads",
        title=f"reads of the management API beside {web.JOBS:,} jobs, p50",
        measure=web.reads(),
        targets=(Target(of="p99", at_most=1_000, absolute=True),),
    ),
    Scenario(
        name="web-pulse",
        title=f"the server, while a stream is open beside {web.JOBS:,} jobs",
        measure=web.pulse(),
        targets=(Target(at_most=10, absolute=True),),
    ),
    Scenario(
        name="web-streams",
        title="a process with 200 streams",
        measure=web.listeners(streams=200),
        twin=web.listeners(streams=1),
        beside="one stream",
    ),
]

# To add a scenario, write a function that measures once, and name it in one of these lists.
ALL = [
    *(*DRAINING, *PICKING_UP, *WAITING, *URGENT, *STORING, *COMPUTING, *HAVING, *STEPPING),
    *(*LIMITING, *BATCHING, *KEEPING, *SERVING),
]
