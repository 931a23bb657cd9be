"""The whole test suite runs on the server that MONQUE_TEST_MONGOD names: here is shown that it does."""

from __future__ import annotations

import os
import subprocess

from pymongo import MongoClient

from monque.embedded import EmbeddedMongo
from support.servers import Servers


def test_every_server_of_the_tests_is_the_named_one(server: EmbeddedMongo) -> None:
    named = os.environ["MONQUE_TEST_MONGOD"]
    told = subprocess.run([named, "--version"], capture_output=True, text=True, check=True, timeout=30).stdout
    with MongoClient(server.uri) as shared, Servers() as servers, servers.nodes[0].client() as own:
        versions = {client.server_info()["version"] for client in (shared, own)}

    assert [f"db version v{version}" in told for version in versions] == [True]
