"""The management of jobs for people and programs, without HTTP.

`Surface` has one method a route. Each decides whether its caller may, reads or acts, writes the audit trail,
and returns what this caller may see of it. `monque.web` speaks HTTP on top of it.
"""

from monque.management.actions import Action
from monque.management.actor import Access, Actor, Authorize, Caller
from monque.management.limits import Limits
from monque.management.redact import DEFAULT_KEYS, Redaction
from monque.management.surface import Surface

__all__ = [
    "DEFAULT_KEYS",
    "Access",
    "Action",
    "Actor",
    "Authorize",
    "Caller",
    "Limits",
    "Redaction",
    "Surface",
]
