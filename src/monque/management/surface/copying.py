"""What a page shows or does, as something to copy."""

from __future__ import annotations

from monque.management.actions import Action
from monque.management.actor import Caller
from monque.management.copying import way
from monque.management.ops import OpsCopyBody, OpsWays
from monque.management.surface.searching import Searching
from monque.management.values import iso


class Copying(Searching):
    """`/copy-as`."""

    async def ops_copy_as(self, caller: Caller, body: OpsCopyBody) -> OpsWays:
        """`POST /copy-as`: requests as commands, as Python and as curl. Nothing is done."""
        await self._demand(caller, Action.READ)
        lists_failures = await self._lists_failures()
        ways = [way(each, body.root, lists_failures=lists_failures) for each in body.requests]
        return OpsWays(server_time=iso(self._now()), ways=ways)
