"""The admin, and a view that enqueues."""

from typing import Any

from django.contrib import admin
from django.http import HttpResponse
from django.urls import path

from support.djangoapp.tasks import add


def enqueue(request: Any) -> HttpResponse:
    return HttpResponse(add.enqueue(2, 3).id)


async def aenqueue(request: Any) -> HttpResponse:
    return HttpResponse((await add.aenqueue(2, 3)).id)


urlpatterns = [path("admin/", admin.site.urls), path("enqueue", enqueue), path("aenqueue", aenqueue)]
