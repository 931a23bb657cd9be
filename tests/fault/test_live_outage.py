"""Open live streams while the database does not answer: they are told, stay open, and go on afterwards."""

from __future__ import annotations

from datetime import timedelta

import pytest

from monque import Monque
from monque.web import Limits, dashboard
from support.aliases import Database
from support.asgi_stream import AsgiStream, asgi_stream
from support.jobs import document
from support.options import QUICK
from support.servers import Servers

LIMITS = Limits(tick=timedelta(milliseconds=50), query_timeout=timedelta(milliseconds=200))


@pytest.fixture
def host(mortal: Servers) -> Servers:
    return mortal


async def recovered(stream: AsgiStream, seq: int) -> int:
    """Wait until a stream is live again; the number of the tick that says so."""
    while True:
        event = await stream.next(within=60)
        assert event.event in ("delta", "trouble")
        assert event.seq == seq + 1, "there is a gap"
        seq = event.seq
        if event.event == "delta":
            assert event.data["trouble"] is None
            return seq


async def test_streams_are_told_of_an_outage_and_live_again_afterwards(
    host: Servers, database: Database
) -> None:
    """First a server that answers nothing, with all connections open; then one that is killed."""
    node = host.nodes[0]
    await database["monque_jobs"].insert_one(document(name="send-email"))
    async with (
        Monque(host.uri(database.name), options=QUICK) as monque,
        dashboard(monque, limits=LIMITS) as board,
        asgi_stream(board) as stream,
    ):
        await stream.until("snapshot")

        node.freeze()
        try:
            trouble = await stream.until("trouble", within=60)
            async with asgi_stream(board) as newcomer:
                shown = await newcomer.until("snapshot")
        finally:
            node.thaw()
        seq = await recovered(stream, trouble.seq)

        node.kill()
        killed = await stream.until("trouble", within=60)
        node.launch()
        await recovered(stream, killed.seq)

    assert "has not answered for 1 s" in trouble.data["text"]
    assert trouble.data["since"].endswith("Z")
    assert shown.data["trouble"]["text"] == trouble.data["text"]
    assert [row[0] for row in shown.data["names"]] == ["send-email"]
    assert killed.seq > seq
