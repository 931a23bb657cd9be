"""A database that goes away and comes back under a dashboard."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

from monque import Trends
from monque.web import Limits, dashboard
from monque.web.desk import Setup
from monque.web.route import Need
from support.aliases import Collection, Make
from support.examples import routes, send
from support.jobs import document
from support.options import QUICK
from support.proxy import Proxy
from support.waiting import eventually
from support.web import Connect

# What asks no database, or gives up so soon that it answers what it has.
UNTOUCHED = {"opsSchedulePreview", "opsMe", "opsSearch"}


async def test_without_its_database_every_route_is_503_and_then_fine_again(
    make_monque: Make, collection: Collection, connect: Connect
) -> None:
    job = document()
    await collection.insert_one(job)
    limits = Limits(queries_at_once=100, query_timeout=timedelta(seconds=1))
    asking = [route for route in routes() if route.opens and route.operation not in UNTOUCHED]
    async with Proxy(await collection.database.client.address) as proxy:
        uri = proxy.uri(collection.database.name, "serverSelectionTimeoutMS=500")
        monque = await make_monque(uri, options=replace(QUICK, trends=Trends()), companions=True).open()
        async with dashboard(monque, allow_enqueue=True, limits=limits) as board:
            client = connect(board)
            assert (await client.get(f"/api/v1/jobs/{job['_id']}")).status_code == 200
            await proxy.cut()
            answers = await asyncio.gather(*(send(client, route, str(job["_id"])) for route in asking))
            for route, answer in zip(asking, answers, strict=True):
                assert answer.status_code == 503, f"{route.operation}: {answer.text}"
                assert answer.headers["retry-after"] == "2"
            assert (await client.get("/api/v1/health")).status_code == 200
            assert all(isinstance(route.right, Need) or route.opens for route in routes())
            await proxy.restore()

            async def check() -> None:
                assert (await client.get("/api/v1/jobs")).status_code == 200

            await eventually(check)


async def test_a_frozen_database_is_named_before_any_limit_and_a_write_may_still_be_done(
    make_monque: Make, collection: Collection, connect: Connect
) -> None:
    """With the options of the driver as they are, and more questions than are read at once."""
    job = document()
    await collection.insert_one(job)
    async with Proxy(await collection.database.client.address) as proxy:
        monque = await make_monque(proxy.uri(collection.database.name), options=QUICK, companions=True).open()
        async with dashboard(monque, limits=Limits(queries_at_once=1)) as board:
            client = connect(board)
            assert (await client.get("/api/ops/v1/jobs")).status_code == 200
            proxy.freeze()
            reads = (client.get(f"/api/ops/v1/jobs?limit={limit}") for limit in (1, 2, 3))
            write = client.post(f"/api/ops/v1/jobs/{job['_id']}/cancel", json={})
            *answers, doubtful = await asyncio.gather(*reads, write)
            for answer in (*answers, doubtful):
                assert answer.status_code == 503, answer.text
                assert answer.json()["type"] == "urn:monque:problem:database-away"
            assert "may still be done" in doubtful.json()["detail"]

            await proxy.cut()  # as a frozen process is ended
            await proxy.restore()

            async def check() -> None:
                assert (await client.get("/api/ops/v1/jobs")).status_code == 200

            await eventually(check, within=60)


async def test_without_its_database_health_is_200_and_unavailable(
    make_monque: Make, collection: Collection, connect: Connect
) -> None:
    async with Proxy(await collection.database.client.address) as proxy:
        # Long enough to connect on a busy machine; the end of the test waits for it.
        monque = make_monque(proxy.uri(collection.database.name, "serverSelectionTimeoutMS=5000"))
        await monque.start()
        client = connect(dashboard(monque))

        async def health_is(status: str) -> None:
            answer = await client.get("/api/v1/health")
            assert (answer.status_code, answer.json()["status"]) == (200, status)

        await eventually(lambda: health_is("ok"), within=60)
        await proxy.cut()
        await eventually(lambda: health_is("unavailable"), within=60)


async def test_a_dashboard_is_closed_only_when_entries_of_the_trail_have_ended(make_monque: Make) -> None:
    """Its Monque is closed next. Such an entry is written while nobody waits for it: the database is away."""
    ends = []

    async def entry() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ends.append("entry")

    setup = Setup(await make_monque(options=QUICK).open())
    setup.go_on(entry())
    await asyncio.sleep(0)
    await setup.close()

    assert ends == ["entry"]
