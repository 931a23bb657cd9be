"""What is left of the driver's messages: the reason and the advice, no dump."""

from __future__ import annotations

import pytest
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    NetworkTimeout,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
)

from monque._values.words import driver_reason

TIMEOUTS = "(configured timeouts: socketTimeoutMS: 20000.0ms, connectTimeoutMS: 20000.0ms)"
START_IT = "; start it there, or correct the address in the URI"


def unreachable(*servers: tuple[str, int | None, str | None]) -> ServerSelectionTimeoutError:
    """As the driver words it."""
    described = [
        f"<ServerDescription ({host!r}, {port}) server_type: Unknown, rtt: None"
        + ("" if error is None else f", error=AutoReconnect({f'{host}:{port}: {error} {TIMEOUTS}'!r})")
        + ">"
        for host, port, error in servers
    ]
    summary = ",".join(f"{host}:{port}: {error} {TIMEOUTS}" for host, port, error in servers)
    return ServerSelectionTimeoutError(
        f"{summary}, Timeout: 5.0s, Topology Description: <TopologyDescription id: 6afbb670206812b806136cb7, "
        f"topology_type: Unknown, servers: [{', '.join(described)}]>"
    )


def planner(reason: str) -> OperationFailure:
    """As the server words it: with the whole query."""
    text = (
        'error processing query: ns=shop.monque_jobs batchSize=7 limit=6Tree: $and\n    name $eq "secret"\n'
        f"Sort: {{ nextRunAt: 1 }}\nProj: {{}}\n planner returned error :: caused by :: {reason}"
    )
    return OperationFailure(text, 2, {"errmsg": text, "code": 2})


REFUSED = "[Errno 111] Connect call failed ('127.0.0.1', 1)"


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (unreachable(("db", 1, REFUSED)), f"no MongoDB at db:1 (connection refused){START_IT}"),
        (
            unreachable(("a", 1, REFUSED), ("b", 2, "timed out")),
            f"no MongoDB at a:1 (connection refused) or b:2 (no answer){START_IT}",
        ),
        (
            unreachable(("localhost", 1, REFUSED)),
            f"no MongoDB at localhost:1 (connection refused){START_IT}; for development, Monque() without an "
            "address starts a MongoDB of its own: pip install 'pymonque[embedded]'",
        ),
        (
            unreachable(("localhost", 1, REFUSED), ("db", 2, REFUSED)),
            f"no MongoDB at localhost:1 (connection refused) or db:2 (connection refused){START_IT}",
        ),
        (unreachable(("127.0.0.1", 1, "timed out")), f"no MongoDB at 127.0.0.1:1 (no answer){START_IT}"),
        (unreachable(("db", 1, None)), f"no MongoDB at db:1 (no answer){START_IT}"),
        (
            unreachable(("db", 1, "[Errno -2] Name or service not known")),
            f"no MongoDB at db:1 (unknown host name){START_IT}",
        ),
        (
            unreachable(("db", 1, "[Errno 113] Connect call failed ('10.0.0.1', 1)")),
            f"no MongoDB at db:1 (no route to it){START_IT}",
        ),
        (
            unreachable(("/tmp/x.sock", None, "[Errno 2] No such file or directory")),
            f"no MongoDB at /tmp/x.sock (no such socket file){START_IT}",
        ),
        (
            unreachable(("db", 1, "SSL handshake failed: [SSL: WRONG_VERSION_NUMBER] wrong version")),
            f"no MongoDB at db:1 (SSL handshake failed: [SSL: WRONG_VERSION_NUMBER] wrong version){START_IT}",
        ),
        (
            ServerSelectionTimeoutError(
                "No primary available for writes, Timeout: 30s, Topology Description: <TopologyDescription "
                "id: 1, topology_type: ReplicaSetNoPrimary, servers: [<ServerDescription ('db', 1) "
                "server_type: RSSecondary, rtt: 0.001>]>"
            ),
            "No primary available for writes; check that its members run (rs.status()), and replicaSet= in "
            "the URI",
        ),
        (
            AutoReconnect(f"db:1: connection closed {TIMEOUTS}"),
            "db:1: connection closed",
        ),
        (NetworkTimeout(f"db:1: timed out {TIMEOUTS}"), "db:1: timed out"),
        (
            OperationFailure("Authentication failed.", 18, {"errmsg": "Authentication failed.", "code": 18}),
            "Authentication failed; check the user, the password and authSource in the URI",
        ),
        (
            OperationFailure(
                "refused",
                13,
                {"errmsg": 'not authorized on shop to execute command { insert: "jobs", a: "secret" }'},
            ),
            "not authorized on shop to execute insert; give the user the role readWrite on this database",
        ),
        (
            BulkWriteError({"writeErrors": [{"errmsg": "disk full", "op": {"data": "secret"}}]}),
            "disk full",
        ),
        (
            BulkWriteError({"writeErrors": [], "writeConcernErrors": [{"errmsg": "not replicated"}]}),
            "not replicated",
        ),
        (
            planner("hint provided does not correspond to an existing index"),
            "somebody dropped an index that Monque needs; workers create it again unless create_indexes is "
            "False, and so does monque indexes --create",
        ),
        (planner("no indexed plans available"), "no indexed plans available"),
        (OperationFailure("odd", 1), "odd"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, PyMongoError) else None,
)
def test_the_driver_is_quoted_without_its_dump(error: PyMongoError, sentence: str) -> None:
    assert driver_reason(error) == sentence
