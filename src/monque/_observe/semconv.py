"""The names OpenTelemetry gives to what happens in a messaging system, and those we add.

The messaging conventions are still in development: if they change, they change here. Written down rather
than imported, since the package that has them calls them incubating and may drop them.
"""

from __future__ import annotations

from typing import Final

SYSTEM: Final = "messaging.system"
OPERATION_TYPE: Final = "messaging.operation.type"
OPERATION_NAME: Final = "messaging.operation.name"
DESTINATION: Final = "messaging.destination.name"
MESSAGE_ID: Final = "messaging.message.id"
BATCH_COUNT: Final = "messaging.batch.message_count"
CLIENT_ID: Final = "messaging.client.id"
ERROR_TYPE: Final = "error.type"
COLLECTION: Final = "db.collection.name"

MONQUE: Final = "monque"
SEND: Final = "send"
PROCESS: Final = "process"

JOB_ATTEMPT: Final = "monque.job.attempt"
JOB_INTERRUPTED: Final = "monque.job.interrupted"
JOB_ENDING: Final = "monque.job.ending"
JOB_STATE: Final = "monque.job.state"

SENT: Final = "messaging.client.sent.messages"
CONSUMED: Final = "messaging.client.consumed.messages"
PROCESS_DURATION: Final = "messaging.process.duration"
JOB_WAIT: Final = "monque.job.wait"
QUEUE_DEPTH: Final = "monque.queue.depth"
OLDEST_DUE: Final = "monque.queue.oldest_due"
NAME_PAUSED: Final = "monque.name.paused"
STALL: Final = "monque.event_loop.stall"
STUCK: Final = "monque.job.stuck"

# Of the conventions, in seconds; waits and runs of jobs may take longer than the requests they were made for.
SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
