"""How many live streams a dashboard serves."""

from __future__ import annotations

from typing import Any


class Counted:
    """A dashboard that knows how many streams it serves."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.open = 0
        self.opened = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if not scope.get("path", "").endswith("/stream"):
            return await self.app(scope, receive, send)
        self.open += 1
        self.opened += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.open -= 1

    async def close(self) -> None:
        await self.app.close()
