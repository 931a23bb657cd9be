"""Monque in a Django project: a backend for its tasks, commands for `manage.py`, the dashboard for its staff.

Nothing is imported before it is used: Django imports this package while it sets itself up.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

try:
    import django as _django  # noqa: F401 - to say what is missing
except ModuleNotFoundError as error:
    if error.name != "django":
        raise
    raise ModuleNotFoundError(
        "monque.django needs Django; install it with: pip install 'pymonque[django]'", name="django"
    ) from error

if TYPE_CHECKING:
    from monque.django.backend import MonqueBackend
    from monque.django.clients import get_monque, make_monque, session_of
    from monque.django.dashboard import dashboard_application
    from monque.django.declared import MonqueTask

__all__ = [
    "MonqueBackend",
    "MonqueTask",
    "dashboard_application",
    "get_monque",
    "make_monque",
    "session_of",
]

_HOMES = {
    "MonqueBackend": "backend",
    "MonqueTask": "declared",
    "dashboard_application": "dashboard",
    "get_monque": "clients",
    "make_monque": "clients",
    "session_of": "clients",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"monque.django.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'monque.django' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
