"""What all requests of one dashboard share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from monque.management import Surface
from monque.web.live import Streams


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What handlers need beside their request.

    Attributes:
        surface: Where every handler goes.
        document: The OpenAPI document, for a dashboard that is mounted at this prefix.
        streams: The open live streams.
        root_path: The prefix that the operator gave, if any.
    """

    surface: Surface
    document: Callable[[str], dict[str, Any]]
    streams: Streams
    root_path: str | None
