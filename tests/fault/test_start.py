"""What an instance says when it starts, on servers of each kind."""

from __future__ import annotations

import logging

import pytest

from support.aliases import Make
from support.servers import Servers


class TestStandalone:
    @pytest.fixture
    def host(self, standalone: Servers) -> Servers:
        return standalone

    async def test_a_server_without_change_streams_is_polled_and_the_start_says_so(
        self, make_monque: Make, caplog: pytest.LogCaptureFixture
    ) -> None:
        monque = make_monque()
        monque.worker("mail", lambda job: None)
        caplog.set_level(logging.INFO, "monque")
        await monque.start()

        [line] = [record.getMessage() for record in caplog.records if "works on" in record.getMessage()]
        assert line.endswith("looking for new jobs every 0.2 s")
