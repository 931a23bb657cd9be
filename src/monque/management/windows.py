"""How far back a page looks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from monque.management.ops import Window

WINDOWS: Mapping[Window, timedelta] = {
    "15m": timedelta(minutes=15),
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}
