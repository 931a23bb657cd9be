"""What is imported, and when."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def run(program: str, *folders: Path) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(map(str, folders))
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )


def test_the_package_imports_nothing_of_django_before_it_is_used() -> None:
    """Django imports it while it sets itself up."""
    done = run("import sys, monque.django; print(*sys.modules)")

    modules = set(done.stdout.split())
    assert not {"django.db", "django.conf", "django.tasks", "django_tasks", "click", "pymongo"} & modules
    assert "MonqueBackend" in run("import monque.django; print(dir(monque.django))").stdout


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert "has no attribute 'Backend'" in run("import monque.django; monque.django.Backend").stderr


def test_the_names_can_be_imported_without_settings() -> None:
    done = run("from monque.django import *")

    assert done.returncode == 0, done.stderr


def test_a_django_without_tasks_is_told_what_to_install(tmp_path: Path) -> None:
    import django

    if django.VERSION >= (6, 0):
        pytest.skip("this Django has tasks")
    (tmp_path / "django_tasks.py").write_text("raise ModuleNotFoundError('No module', name='django_tasks')")

    done = run("from monque.django import MonqueBackend", tmp_path)

    assert "pip install django-tasks" in done.stderr


def test_a_monque_of_the_settings_needs_no_tasks(tmp_path: Path) -> None:
    import django

    if django.VERSION >= (6, 0):
        pytest.skip("this Django has tasks")
    (tmp_path / "django_tasks.py").write_text("raise ModuleNotFoundError('No module', name='django_tasks')")
    program = """
from django.conf import settings
settings.configure(TASKS={"default": {"OPTIONS": {"uri": "mongodb://localhost:1/shop"}}})
from monque.django import get_monque
print(get_monque())
"""

    done = run(program, tmp_path)

    assert "<SyncMonque" in done.stdout, done.stderr
