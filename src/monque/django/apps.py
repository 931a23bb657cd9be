"""The app: put `"monque.django"` into `INSTALLED_APPS`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.apps import AppConfig, apps
from django.core import checks

APP = "monque.django"

_BACKPORT = "django_tasks"


class MonqueConfig(AppConfig):
    """Brings the commands `monque_worker` and `monque_stats`, and a page in the admin."""

    name = APP
    label = "monque"
    verbose_name = "Monque"

    def ready(self) -> None:
        """Let `manage.py check` look for the app of the task interface, which checks everything else."""
        checks.register(_check_interface)


def _check_interface(**_: Any) -> Iterable[checks.CheckMessage]:
    from monque.django.interface import Task

    if Task.__module__.startswith(_BACKPORT) and not apps.is_installed(_BACKPORT):
        yield checks.Warning(
            f'the tasks of this Django are those of the app "{_BACKPORT}"; add it to INSTALLED_APPS, or the '
            "setting TASKS is not checked",
            id="monque.W003",
        )
