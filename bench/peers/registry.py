"""Who takes part, with which settings, and how the server shows that every job has ended.

To add one: a program in `contestants/` or `node/`, and an entry here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from bench.peers.servers import Clients, Store

Variant = Literal["default", "tuned"]
VARIANTS: tuple[Variant, ...] = ("default", "tuned")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a program is given. *note* says it in words, for the tables."""

    note: str
    options: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """One queue.

    Attributes:
        title: Its name in the tables.
        store: The server that keeps its jobs.
        program: The file in `contestants/` or `node/`.
        packages: What is installed for it. The first one is the version that the tables show.
        ended: Asks the server, not the worker, whether each job has ended.
        acknowledges: When a job is taken off: what a crash costs.
        bulk: Whether it has a call that stores many jobs; if not, fifty callers do.
        jobs: How many a drain works off with each settings; slow queues get fewer.
    """

    title: str
    store: Store
    program: str
    packages: tuple[str, ...]
    ended: Callable[[Clients], bool]
    acknowledges: str
    default: Settings
    tuned: Settings
    bulk: bool = False
    jobs: tuple[int, int] = (5_000, 10_000)

    @property
    def is_node(self) -> bool:
        """Whether it is a program for Node."""
        return self.program.endswith(".mjs")

    def settings(self, variant: Variant) -> Settings:
        """The settings of this name."""
        return self.default if variant == "default" else self.tuned


def _none_in_redis(*keys: str) -> Callable[[Clients], bool]:
    return lambda clients: not any(clients.redis.exists(key) for key in keys)


def _none_in_postgres(rows: str) -> Callable[[Clients], bool]:
    query = f"select 1 from {rows} limit 1"  # noqa: S608 - the text is our own
    return lambda clients: clients.postgres.execute(query).fetchone() is None


def _none_in_mongo(path: str, active: Mapping[str, Any]) -> Callable[[Clients], bool]:
    database, _, collection = path.partition(".")
    return lambda clients: clients.mongo[database][collection].find_one(active, {"_id": 1}) is None


def _stream_is_read(clients: Clients) -> bool:
    groups = clients.redis.xinfo_groups("taskiq")
    return bool(groups) and all(group["pending"] == 0 and not group.get("lag") for group in groups)


_QUIET = ["--without-gossip", "--without-mingle", "--without-heartbeat"]

CONTESTANTS: dict[str, Contestant] = {
    "monque": Contestant(
        title="**Monque**",
        store="MongoDB",
        program="monque_.py",
        packages=("pymonque", "uvloop==0.23.0"),
        ended=_none_in_mongo("monque.monque_jobs", {"status": {"$ne": "completed"}}),
        acknowledges="after the run",
        bulk=True,
        jobs=(30_000, 30_000),
        default=Settings(note="as installed"),
        tuned=Settings(note="uvloop, `Keep(completed=0)`", options={"uvloop": True, "keep": 0}),
    ),
    "pymongo": Contestant(
        title="plain PyMongo",
        store="MongoDB",
        program="pymongo_.py",
        packages=("pymongo==4.20.0", "uvloop==0.23.0"),
        ended=_none_in_mongo("plain.jobs", {"status": {"$ne": "done"}}),
        acknowledges="after the run",
        bulk=True,
        jobs=(30_000, 30_000),
        default=Settings(note="claims of 100 jobs, by a majority", options={"batch": 100}),
        tuned=Settings(
            note="claims of 500 jobs, by a majority; uvloop", options={"batch": 500, "uvloop": True}
        ),
    ),
    "agenda": Contestant(
        title="Agenda (Node)",
        store="MongoDB",
        program="agenda.mjs",
        packages=("agenda@6.2.6", "@agendajs/mongo-backend@4.0.3", "mongodb@7.8.0"),
        ended=_none_in_mongo("agenda.agendaJobs", {"lastFinishedAt": None}),
        acknowledges="after the run",
        jobs=(1_000, 2_000),
        default=Settings(note="as installed: polls every 5 s"),
        tuned=Settings(
            note="`processEvery` 100 ms, concurrency 100, `removeOnComplete`",
            options={
                "agenda": {
                    "processEvery": 100,
                    "maxConcurrency": 100,
                    "defaultConcurrency": 100,
                    "defaultLockLimit": 200,
                    "removeOnComplete": True,
                }
            },
        ),
    ),
    "celery": Contestant(
        title="Celery",
        store="Redis",
        program="celery_.py",
        packages=("celery[redis]==5.7.0", "hiredis==3.5.0"),
        ended=_none_in_redis("celery", "unacked"),
        acknowledges="before the run",
        default=Settings(note="prefork, `-c 1`", options={"arguments": ["-c", "1"]}),
        tuned=Settings(
            note="threads, `-c 4`, prefetch 128, no gossip, mingle, heartbeat and remote control",
            options={
                "arguments": ["-P", "threads", "-c", "4", *_QUIET],
                "settings": {"worker_prefetch_multiplier": 128, "worker_enable_remote_control": False},
            },
        ),
    ),
    "rq": Contestant(
        title="RQ",
        store="Redis",
        program="rq_.py",
        packages=("rq==2.12.0", "hiredis==3.5.0"),
        ended=_none_in_redis("rq:queue:default", "rq:wip:default"),
        acknowledges="after the run",
        bulk=True,
        jobs=(500, 3_000),
        default=Settings(note="`Worker`, a fork for each job"),
        tuned=Settings(note="`SimpleWorker`, `result_ttl=0`", options={"simple": True, "ttl": 0}),
    ),
    "dramatiq": Contestant(
        title="Dramatiq",
        store="Redis",
        program="dramatiq_.py",
        packages=("dramatiq[redis]==2.2.1", "hiredis==3.5.0"),
        ended=_none_in_redis("dramatiq:default.msgs"),
        acknowledges="after the run",
        default=Settings(note="`-p 1 -t 8`"),
        tuned=Settings(
            note="`-p 1 -t 2`, prefetch 500",
            options={"arguments": ["-t", "2"]},
            environment={"dramatiq_queue_prefetch": "500"},
        ),
    ),
    "arq": Contestant(
        title="arq",
        store="Redis",
        program="arq_.py",
        packages=("arq==0.28.0", "hiredis==3.5.0", "uvloop==0.23.0"),
        ended=_none_in_redis("arq:queue"),
        acknowledges="after the run",
        jobs=(1_000, 5_000),
        default=Settings(note="10 jobs at once, polls every 0.5 s"),
        tuned=Settings(
            note="100 jobs at once, polls every 10 ms, no results, uvloop",
            options={
                "uvloop": True,
                "worker": {
                    "max_jobs": 100,
                    "poll_delay": 0.01,
                    "keep_result": 0,
                    "queue_read_limit": 500,
                    "log_results": False,
                },
            },
        ),
    ),
    "taskiq": Contestant(
        title="taskiq",
        store="Redis",
        program="taskiq_.py",
        packages=(
            "taskiq[uv,orjson]==0.13.0",
            "taskiq-redis==1.2.4",
            "hiredis==3.5.0",
            "uvloop==0.23.0",
        ),
        ended=_stream_is_read,
        acknowledges="after the run",
        default=Settings(note="a stream, one worker process", options={"stream": {"consumer_id": "0"}}),
        tuned=Settings(
            note="a stream read 1,000 at a time, `--max-prefetch 1000 --no-parse`, orjson",
            options={
                "stream": {"consumer_id": "0", "xread_count": 1000},
                "orjson": True,
                "arguments": ["--max-prefetch", "1000", "--no-parse"],
            },
        ),
    ),
    "huey": Contestant(
        title="huey",
        store="Redis",
        program="huey_.py",
        packages=("huey[redis]==3.5.4", "hiredis==3.5.0"),
        ended=_none_in_redis("huey.redis.bench"),
        acknowledges="never: taken off first",
        default=Settings(note="one thread"),
        tuned=Settings(
            note="4 threads, no results, no schedules",
            options={"huey": {"results": False}, "consumer": {"workers": 4, "periodic": False}},
        ),
    ),
    "bullmq": Contestant(
        title="BullMQ (Node)",
        store="Redis",
        program="bullmq.mjs",
        packages=("bullmq@6.7.0", "ioredis@5.11.1"),
        ended=_none_in_redis("bull:bench:wait", "bull:bench:active"),
        acknowledges="after the run",
        bulk=True,
        jobs=(10_000, 30_000),
        default=Settings(note="concurrency 1"),
        tuned=Settings(
            note="concurrency 100, `removeOnComplete`",
            options={"worker": {"concurrency": 100}, "job": {"removeOnComplete": True}},
        ),
    ),
    "pgqueuer": Contestant(
        title="pgqueuer",
        store="PostgreSQL",
        program="pgqueuer_.py",
        packages=("pgqueuer[asyncpg]==1.6.0", "uvloop==0.23.0"),
        ended=_none_in_postgres("pgqueuer"),
        acknowledges="after the run",
        bulk=True,
        jobs=(10_000, 30_000),
        default=Settings(note="`batch_size=10`"),
        tuned=Settings(note="`batch_size=500`, uvloop", options={"uvloop": True, "run": {"batch_size": 500}}),
    ),
    "procrastinate": Contestant(
        title="Procrastinate",
        store="PostgreSQL",
        program="procrastinate_.py",
        packages=("procrastinate==3.10.0", "psycopg[binary,pool]==3.3.8"),
        ended=_none_in_postgres("procrastinate_jobs where status in ('todo', 'doing')"),
        acknowledges="after the run",
        bulk=True,
        jobs=(1_500, 3_000),
        default=Settings(note="concurrency 1"),
        tuned=Settings(
            note="concurrency 50, `delete_jobs=always`, a pool of 20",
            options={
                "worker": {"concurrency": 50, "delete_jobs": "always"},
                "pool": {"min_size": 5, "max_size": 20},
            },
        ),
    ),
    "pg-boss": Contestant(
        title="pg-boss (Node)",
        store="PostgreSQL",
        program="pg_boss.mjs",
        packages=("pg-boss@12.35.0",),
        ended=_none_in_postgres("pgboss.job where name = 'noop' and state < 'completed'"),
        acknowledges="after the run",
        bulk=True,
        jobs=(100, 30_000),
        default=Settings(note="one job every 2 s"),
        tuned=Settings(
            note="`batchSize` 2000, `burstWhenBatchFull`, LISTEN and NOTIFY, polls every 0.5 s",
            options={
                "boss": {"useListenNotify": True},
                "queue": {"notify": True},
                "work": {"batchSize": 2000, "pollingIntervalSeconds": 0.5, "burstWhenBatchFull": True},
            },
        ),
    ),
    "graphile-worker": Contestant(
        title="graphile-worker (Node)",
        store="PostgreSQL",
        program="graphile_worker.mjs",
        packages=("graphile-worker@0.18.0",),
        ended=_none_in_postgres("graphile_worker._private_jobs"),
        acknowledges="after the run",
        bulk=True,
        jobs=(5_000, 30_000),
        default=Settings(note="`concurrentJobs` 1"),
        tuned=Settings(
            note="`concurrentJobs` 24, a local queue of 1,000, completions in batches",
            options={
                "worker": {
                    "concurrentJobs": 24,
                    "maxPoolSize": 25,
                    "localQueue": {"size": 1000},
                    "completeJobBatchDelay": 0,
                    "failJobBatchDelay": 0,
                }
            },
        ),
    ),
}
