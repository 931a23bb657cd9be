"""The management of jobs for people and programs, without HTTP.

`Surface` has one method a route. Each decides whether its caller may, reads or acts, writes the audit trail,
and returns what this caller may see. `monque.web` speaks HTTP on top of it.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from monque.management.actions import Action
    from monque.management.actor import Access, Actor, Authorize, Caller
    from monque.management.job_view import version_of
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
    "version_of",
]

# Imported when they are asked for: the command line uses small modules of this package, and starts quickly.
_HOMES = ("actions", "actor", "limits", "redact", "job_view", "surface")


def __getattr__(name: str) -> Any:
    if name in __all__:
        for home in _HOMES:
            module = importlib.import_module(f"monque.management.{home}")
            if hasattr(module, name):
                globals()[name] = getattr(module, name)
                return globals()[name]
    raise AttributeError(f"module 'monque.management' has no attribute {name!r}")
