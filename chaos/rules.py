"""The numbers that every process of a run and the checker agree on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from monque import Options


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the checker holds the history against; seconds."""

    tolerance: float = 4.0
    """A claim may be taken from its owner after this long without a heartbeat, not before."""
    max_retries: int = 6
    pause_takes: float = 2.0
    """After this no instance starts a job of a name that was paused."""
    patience: float = 2.0
    """How late a job of the name `fresh` may start."""
    window: float = 1.5
    """Of the calls with a window, at most one is accepted within this."""
    round: float = 1.0
    """How often an instance looks after its jobs."""
    sweep: float = 30.0
    """How often an instance looks whether somebody waits whose reason is gone."""
    clock_error: float = 0.005
    """How far the server's clock and the one of the history may seem apart."""


RULES = Rules()

# How long the event loop of a process must have stood still to be worth a line: it was starved or blocked.
STALL = 0.5

# Short times, so that a process that died is noticed, and its job done by another, within a short run.
OPTIONS = Options(
    poll_interval=timedelta(milliseconds=500),
    safety_poll_interval=timedelta(seconds=5),
    heartbeat_interval=timedelta(seconds=RULES.round),
    heartbeat_tolerance=timedelta(seconds=RULES.tolerance),
    max_retries=RULES.max_retries,
    base_retry_interval=timedelta(milliseconds=50),
    shutdown_timeout=timedelta(seconds=5),
    # The checker wants to see every attempt, also of jobs that operators retried. Twice as many are not
    # allowed; with half as many, a job that everything happens to might lose its first ones.
    attempt_history=100,
)

# The schedules with an interval, by the names of their jobs: one runs itself, one stores jobs, one does so
# only while none of its jobs is active. Older versions do not serve these names.
SCHEDULES = ("pulse", "spawning", "skipping")
EVERY = timedelta(seconds=1)

DATABASE = "chaos"
# What users write beside their jobs, in the same transaction.
ORDERS = "orders"
# What handlers write in the transaction that completes their job.
EFFECTS = "effects"

# The names whose handlers have steps, and the signal that they wait for. Older versions do not serve them.
STEPPED = ("order",)
SIGNAL = "go"
# Steps move money between these accounts, each of which begins with this balance. With half as many, jobs
# would wait for each other most of the time; with twice as many, transactions would hardly ever conflict.
ACCOUNTS = "accounts"
TRANSFERS = "transfers"
ACCOUNT_NAMES = ("ada", "bob", "cleo", "dan", "eve")
BALANCE = 10_000


@dataclass(frozen=True, slots=True)
class Lines:
    """How many handlers of a name may run at once; by customer, if each has a line."""

    running: int
    by_customer: bool = False
    ordered: bool = False


# The names with limits. Older versions do not serve them, nor those below.
LIMITED = {
    "narrow": Lines(3),
    "lined": Lines(2, by_customer=True),
    "lone": Lines(1, by_customer=True),
    "ordered": Lines(1, by_customer=True, ordered=True),
}
# With half as many customers, lines would be long when all is over; with twice as many, few jobs would wait.
CUSTOMERS = ("anna", "ben", "carl", "dora")

# Jobs of batches, and what follows these.
BATCHED, CALLBACK = "part", "callback"
# Jobs that wait for others, and those others.
PARENT, CHILD = "parent", "child"
# Jobs that fail for good, and what is stored then: by the worker, or by a call.
FRAGILE, DEAD, UNDONE = "fragile", "fragile.dead", "fragile.undone"
# Jobs that are removed when they complete.
FLEETING = "fleeting"
