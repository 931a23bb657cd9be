"""The functions behind the routes, called without HTTP."""

from __future__ import annotations

from typing import Any

from monque import Monque
from monque.web.access.permissions import Caller
from monque.web.app import ROUTES
from monque.web.desk import Desk, Setup
from monque.web.route import Given, perform


def body_of(operation: str, **fields: Any) -> Any:
    """The body of a route, as its model."""
    model = ROUTES.by_operation[operation].body
    assert isinstance(model, type)
    return model.model_validate(fields)


class Calls:
    """What a dashboard with these options does for its callers."""

    def __init__(self, monque: Monque, **options: Any) -> None:
        self.monque = monque
        self.setup = Setup(monque, **options)

    async def __call__(self, operation: str, who: Caller, **given: Any) -> Any:
        return await perform(ROUTES.by_operation[operation], Desk(self.setup, who), Given(**given))

    async def close(self) -> None:
        await self.setup.close()
