"""The collections beside the jobs that are written for operators only."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from pymongo.asynchronous.collection import AsyncCollection

from monque._options import Options
from monque._store import audit, register, trends
from monque._store.audit import AuditTrail
from monque._store.companion import EXPIRES, Companion
from monque._store.document import Document

Beside: TypeAlias = Callable[[str], AsyncCollection[Document]]
"""The collection whose name is that of the jobs collection with this suffix."""


class Companions(NamedTuple):
    """What happens over time, who works, and what operators did."""

    trends: Companion
    register: Companion
    audit: AuditTrail

    @classmethod
    def of(cls, beside: Beside, options: Options) -> Companions:
        """Those of one instance; nothing is written yet."""
        return cls(
            trends=Companion(
                beside(trends.SUFFIX),
                "what happens over time",
                trends.INDEXES,
                is_on=options.trends is not None,
                creates_indexes=options.create_indexes,
            ),
            register=Companion(
                beside(register.SUFFIX),
                "the register of instances",
                [EXPIRES],
                is_on=options.register,
                creates_indexes=options.create_indexes,
            ),
            audit=AuditTrail(beside(audit.SUFFIX), create_indexes=options.create_indexes),
        )
