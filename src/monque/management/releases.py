"""When releases came: the first start of each in the register of instances."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from monque import Instance


class Mark(NamedTuple):
    """The first start of a release."""

    release: str
    started_at: datetime


def releases(instances: Sequence[Instance]) -> list[Mark]:
    """The first start of each release, the oldest first."""
    first: dict[str, datetime] = {}
    for instance in instances:
        if instance.release is not None and instance.started_at is not None:
            known = first.get(instance.release)
            first[instance.release] = min(instance.started_at, known or instance.started_at)
    return sorted((Mark(*each) for each in first.items()), key=lambda mark: mark.started_at)
