"""The collections beside the jobs that are written for operators only."""

from __future__ import annotations

from typing import NamedTuple

from monque._ops import audit, register, trends
from monque._ops.audit import AuditTrail
from monque._ops.companion import EXPIRES, Companion
from monque._store.store import Store


class Companions(NamedTuple):
    """What happens over time, who works, and what operators did."""

    trends: Companion
    register: Companion
    audit: AuditTrail

    @classmethod
    def of(cls, store: Store) -> Companions:
        """Those of one instance; nothing is written yet."""
        beside, options = store.beside, store.options
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
