"""The model for the admin: it lists models, and the page that links to the dashboard has to be one."""

from __future__ import annotations

from django.db import models


class _Nothing(models.Manager["Dashboard"]):
    """Finds nothing, and asks no database: `dumpdata` and the other pages of the admin look for rows."""

    def get_queryset(self) -> models.QuerySet[Dashboard]:
        return super().get_queryset().none()


class Dashboard(models.Model):
    """No table: only an entry in the index of the admin."""

    # Given, because the default may be a field that this database does not have.
    id = models.CharField(primary_key=True, max_length=1)

    objects = _Nothing()

    class Meta:
        managed = False
        base_manager_name = "objects"
        default_permissions = ()
        verbose_name = "dashboard"
        verbose_name_plural = "dashboard"
