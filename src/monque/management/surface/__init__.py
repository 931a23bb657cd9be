"""The surface: one method a route, whoever speaks HTTP.

Each module holds the methods of one subject, as a class that builds on those before it: `desk` (decide, read
in turn, write the trail), `hiding` (what a caller sees), `groups` and `trail`, `jobs`, `acting`, `bulk`,
`failing`, `instances`, `numbers`, `explaining`, `scheduling`, `overview`, `searching` and `copying`;
`contract` has `/api/v1`.
"""

from __future__ import annotations

from monque.management.surface.contract import V1Surface
from monque.management.surface.copying import Copying


class Surface(Copying, V1Surface):
    """Looks at jobs and acts on them for callers with rights of their own.

    Every method decides whether its caller may, in general and for the job or the filter in question, reads
    or acts, writes the audit trail, and returns what this caller may see. Nothing here knows HTTP.

    Examples:
        >>> surface = Surface(monque, read_only=True)
        >>> page = await surface.v1_jobs(Caller(actor=Actor("ada")), [("status", "failed")])
    """
