"""Options for tests: waits of milliseconds, so that nothing but the claim takes time."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from monque import Options

# Retries, polls and the shutdown take milliseconds. Tests that are about these times set their own.
QUICK = Options(
    poll_interval=timedelta(milliseconds=200),
    base_retry_interval=timedelta(milliseconds=20),
    shutdown_timeout=timedelta(seconds=10),
    # Two more collections in thousands of test databases would cost minutes.
    trends=None,
    register=False,
)
# A failed attempt is retried after a minute, which no test waits for.
ONE_TRY = replace(QUICK, base_retry_interval=timedelta(seconds=30))
# A lost claim is noticed within a twentieth of a second; no other instance takes a job over.
BEATING = replace(
    QUICK, heartbeat_interval=timedelta(milliseconds=50), heartbeat_tolerance=timedelta(seconds=30)
)
# Jobs of an instance that was silent for a second are recovered.
WATCHFUL = replace(
    QUICK, heartbeat_interval=timedelta(milliseconds=100), heartbeat_tolerance=timedelta(seconds=1)
)
# Polls and safety polls never come: a job that runs was found by a change stream, a hint or a timer.
NEVER_POLLING = replace(QUICK, poll_interval=timedelta(minutes=5), safety_poll_interval=timedelta(minutes=5))


def without_companions(options: Options) -> Options:
    """The same options, for an instance that writes nothing beside its jobs."""
    return replace(options, trends=None, register=False)
