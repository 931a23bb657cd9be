"""The routes of `/api/ops/v1`, and that of the document which describes both APIs."""

from __future__ import annotations

from typing import Any

from monque.web.mount import prefix_of
from monque.web.routes import Ask, Need, Route


async def _document(ask: Ask) -> dict[str, Any]:
    return ask.context.document(prefix_of(ask.request.scope, ask.context.root_path))


DOCUMENT = Route(
    method="GET",
    path="/openapi.json",
    needs=Need.IDENTITY,
    operation="opsDocument",
    summary="This document",
    handler=_document,
    opens=False,
)

OPS_ROUTES = (DOCUMENT,)
