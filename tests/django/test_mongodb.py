"""Jobs in the MongoDB transactions of django-mongodb-backend; in a process with other settings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from monque.embedded import EmbeddedMongo
from support.aliases import Database

SETTINGS = """
import django

SECRET_KEY = "of this test"
USE_TZ = True
INSTALLED_APPS = ["monque.django", "shop"] + (["django_tasks"] if django.VERSION < (6, 0) else [])
DEFAULT_AUTO_FIELD = "django_mongodb_backend.fields.ObjectIdAutoField"
DATABASES = {{"default": {{"ENGINE": "django_mongodb_backend", "HOST": {uri!r}, "NAME": {name!r}}}}}
TASKS = {{
    "default": {{
        "BACKEND": "monque.django.MonqueBackend",
        "OPTIONS": {{"database": "default", "trends": None, "register": False}},
    }}
}}
"""

MODELS = """
from django.db import models


class Order(models.Model):
    prices = models.JSONField()
"""

TASKS = """
from shop.models import Order
from support.djangoapp.interface import task


@task
def total(pk):
    return sum(Order.objects.get(pk=pk).prices)
"""

PROGRAM = """
import asyncio
import django

django.setup()

from django.core.checks import run_checks
from django.db import connections
from django_mongodb_backend.transaction import atomic
from monque.django import get_monque, make_monque, session_of
from monque.django.serving import prepare
from shop.models import Order
from shop.tasks import total

print([each for each in run_checks() if each.is_serious()])
with connections["default"].schema_editor() as editor:
    editor.create_model(Order)

monque = get_monque()
monque.open()  # creates its indexes, which a transaction cannot
print(session_of())

with atomic():
    order = Order.objects.create(prices=[1, 2])
    result = total.enqueue(str(order.pk))
    plain = monque.enqueue("send-invoice", str(order.pk), session=session_of())
    print("inside:", monque.get_job(result.id), monque.get_job(plain.id))
print("committed:", Order.objects.count(), monque.get_job(plain.id).status)

try:
    with atomic():
        order = Order.objects.create(prices=[3])
        lost = total.enqueue(str(order.pk))
        monque.enqueue("send-invoice", str(order.pk), session=session_of())
        raise ZeroDivisionError
except ZeroDivisionError:
    print("rolled back:", Order.objects.count(), monque.get_job(lost.id), monque.estimated_count())

prepare().run_until_idle()
print("value:", total.get_result(result.id).return_value)


async def look():
    # As when a server imports an application in its event loop.
    async with make_monque() as own:
        print("jobs:", await own.estimated_count())


asyncio.run(look())
"""


def test_models_and_jobs_are_in_one_transaction(
    server: EmbeddedMongo, database: Database, tmp_path: Path
) -> None:
    pytest.importorskip("django_mongodb_backend", reason="needs django-mongodb-backend")
    shop = tmp_path / "shop"
    shop.mkdir()
    (tmp_path / "settings.py").write_text(SETTINGS.format(uri=server.uri, name=database.name))
    (shop / "__init__.py").touch()
    (shop / "models.py").write_text(MODELS)
    (shop / "tasks.py").write_text(TASKS)

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "settings",
            "PYTHONPATH": str(Path(__file__).parents[1]),
        },
    )

    if "or later is required" in done.stderr:
        pytest.skip("this django-mongodb-backend needs a newer server than that of the tests")
    assert done.stdout.splitlines() == [
        "[]",
        "None",
        "inside: None None",
        "committed: 1 pending",
        "rolled back: 1 None 2",
        "value: 3",
        "jobs: 2",
    ], done.stderr
