"""The app: put `"monque.django"` into `INSTALLED_APPS`."""

from __future__ import annotations

from django.apps import AppConfig


class MonqueConfig(AppConfig):
    """Brings the commands `monque_worker` and `monque_stats`, and a page in the admin."""

    name = "monque.django"
    label = "monque"
    verbose_name = "Monque"
