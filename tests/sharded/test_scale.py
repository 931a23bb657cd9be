"""`make scale` in small: each measurement, on the cluster of the tests."""

from __future__ import annotations

import pytest

from bench.scale import Scene, drain, idle, lone, table
from support.sharding import Cluster


@pytest.fixture
def scene(cluster: Cluster) -> Scene:
    assert cluster.router is not None
    shards = [shard.nodes[0] for shard in cluster.shards]
    return Scene("two shards", cluster.uri, shards, cluster.router)


async def test_a_lone_job_costs_three_commands_however_many_names_there_are(scene: Scene) -> None:
    for names in (1, 8):
        row = await lone(scene, names=names, jobs=50)

        assert row.jobs == 50
        writes = [commands.get("insert", 0) + commands.get("findAndModify", 0) for commands in row.commands]
        assert sum(writes) == 3 * 50


async def test_processes_drain_all_names_in_few_commands_and_cpu_is_counted(scene: Scene) -> None:
    row = await drain(scene, names=8, processes=2, jobs=1_000)

    assert sum(row.held) == 1_000
    assert all(row.held)
    assert all(0 < commands["update"] < 300 for commands in row.commands)
    assert row.rate > 0
    assert min(row.client, row.mongos, *row.servers) > 0
    assert "| drain | two shards | 8 | 2 |" in table([row])


async def test_a_shard_without_jobs_of_a_drain_writes_nothing(scene: Scene) -> None:
    row = await drain(scene, names=1, processes=1, jobs=500)
    [empty] = [place for place, held in enumerate(row.held) if held == 0]

    assert "insert" not in row.commands[empty]
    assert "findAndModify" not in row.commands[empty]


async def test_idle_processes_poll_once_a_second(scene: Scene) -> None:
    row = await idle(scene, names=8, processes=1, seconds=5)

    assert all(1 <= commands["find"] <= 20 for commands in row.commands)
