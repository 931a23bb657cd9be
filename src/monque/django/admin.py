"""A page of the admin: what waits and runs, and the way to the dashboard."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from monque import MonqueError
from monque.django.clients import get_monque
from monque.django.models import Dashboard

# A page that takes longer helps nobody: the dashboard has the numbers as they come.
_LONGEST = timedelta(seconds=3)


@admin.register(Dashboard)
class DashboardAdmin(admin.ModelAdmin):
    """For every member of the staff, and nothing can be changed in it."""

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Show the page; there is no list."""
        context = {
            **self.admin_site.each_context(request),
            "title": "Monque",
            "dashboard_url": getattr(settings, "MONQUE_DASHBOARD_URL", "/monque/"),
            **_numbers(),
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/monque/dashboard.html", context)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_active and request.user.is_staff)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002 - Django's signature
        return self.has_module_permission(request)

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False


def _numbers() -> dict[str, Any]:
    try:
        return {"depths": get_monque().queue_depths(max_time=_LONGEST)}
    except MonqueError as error:
        return {"trouble": str(error)}
