"""The front door: what `import monque` offers, and what it costs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import monque

NAMES = {
    "the scheduler": "Monque SyncMonque EmbeddedMongo Worker Workers SyncWorker SyncWorkers",
    "values": (
        "Job JobStatus NewJob Options Retention Retry State WorkerSettings JobSettings EnqueueOptions "
        "ScheduleOptions EventKind StatusName Pause Step Wait"
    ),
    "events": (
        "Event JobStarted JobCompleted JobFailed JobError JobCancelled JobRetried JobDeleted JobsCancelled "
        "JobsRetried JobsDeleted ClaimLost StaleJobsRecovered WatchConnected WatchFailed WatchClosed "
        "WatchUnavailable NamePaused NameResumed JobWaiting StepDone"
    ),
    "errors": (
        "MonqueError ConnectionError NotOpenError ConfigurationError InvalidCronError "
        "InvalidJobIdentifierError WorkerRegistrationError InstanceConflictError PayloadError "
        "PayloadTooLargeError JobNotFoundError JobStateError InvalidCursorError AggregationTimeoutError "
        "ShutdownTimeoutError ClaimLostError NotCommittedError ProcessDiedError RemoteError "
        "StepError"
    ),
    "about itself": "__version__",
}


@pytest.mark.parametrize("kind", NAMES)
def test_everything_users_need_is_importable_from_monque(kind: str) -> None:
    wanted = NAMES[kind].split()

    assert [name for name in wanted if not hasattr(monque, name)] == []
    assert [name for name in wanted if name not in monque.__all__] == []


def test_all_names_everything_public_once_and_in_order() -> None:
    public = {
        name
        for name, value in vars(monque).items()
        if not name.startswith("_")
        and not isinstance(value, ModuleType)
        and name not in ("Any", "TYPE_CHECKING")
    }

    assert public - set(monque.__all__) == set()
    assert list(monque.__all__) == sorted(set(monque.__all__), key=lambda name: (not name.isupper(), name))
    assert [name for name in monque.__all__ if not hasattr(monque, name)] == []


def test_a_name_that_does_not_exist_is_refused() -> None:
    with pytest.raises(AttributeError, match="'monque' has no attribute 'Monke'"):
        _ = monque.Monke


def test_the_errors_stand_in_one_tree() -> None:
    bases = {
        "ConnectionError": "PyMongoError",
        "ConfigurationError": "ValueError",
        "InvalidCronError": "ConfigurationError",
        "InvalidJobIdentifierError": "ConfigurationError",
        "PayloadError": "ValueError",
        "PayloadTooLargeError": "PayloadError",
        "JobNotFoundError": "LookupError",
        "InvalidCursorError": "ValueError",
    }

    for name in NAMES["errors"].split():
        error = getattr(monque, name)
        assert issubclass(error, monque.MonqueError)
        assert bases.get(name, "MonqueError") in [base.__name__ for base in error.__mro__]


def test_each_event_has_the_kind_of_the_documentation() -> None:
    kinds = {
        "JobStarted": "job:start",
        "JobCompleted": "job:complete",
        "JobFailed": "job:fail",
        "JobError": "job:error",
        "JobCancelled": "job:cancelled",
        "JobCancelling": "job:cancelling",
        "JobStuck": "job:stuck",
        "JobWaiting": "job:waiting",
        "StepDone": "job:step",
        "JobRetried": "job:retried",
        "JobDeleted": "job:deleted",
        "JobsCancelled": "jobs:cancelled",
        "JobsRetried": "jobs:retried",
        "JobsDeleted": "jobs:deleted",
        "ClaimLost": "job:lost",
        "StaleJobsRecovered": "stale:recovered",
        "NamePaused": "name:paused",
        "NameResumed": "name:resumed",
        "WatchConnected": "changestream:connected",
        "WatchFailed": "changestream:error",
        "WatchClosed": "changestream:closed",
        "WatchUnavailable": "changestream:fallback",
    }

    assert {name: getattr(monque, name).kind for name in kinds} == kinds


def test_importing_monque_imports_only_what_every_program_needs() -> None:
    """Extras may not be installed, and what is not used should not be paid for."""
    program = "import sys; from monque import Monque; print(*sys.modules)"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    modules = set(printed.stdout.split())
    roots = {name.partition(".")[0] for name in modules}

    extras = {
        "click",
        "rich",
        "fastapi",
        "litestar",
        "starlette",
        "uvicorn",
        "uvloop",
        "opentelemetry",
        "prometheus_client",
        "sentry_sdk",
        "pydantic_ai",
    }
    users_own = {"motor", "beanie", "mongoengine", "flask", "django"}
    assert roots & (extras | users_own | {"fiftyone", "pydantic", "pytest"}) == set()
    assert modules & {"monque.sync", "monque.embedded", "monque.demo"} == set()
    assert {"monque", "pymongo", "cronsim"} <= roots


def test_the_package_says_that_it_is_typed() -> None:
    from importlib.resources import files

    assert files("monque").joinpath("py.typed").is_file()


@pytest.mark.parametrize(
    ("module", "needed", "advice"),
    [
        (
            "monque.fastapi",
            "fastapi",
            "monque.fastapi needs FastAPI; install it with: pip install 'pymonque[fastapi]'",
        ),
        (
            "monque.flask",
            "flask",
            "monque.flask needs Flask; install it with: pip install 'pymonque[flask]'",
        ),
        (
            "monque.litestar",
            "litestar",
            "monque.litestar needs Litestar; install it with: pip install 'pymonque[litestar]'",
        ),
        (
            "monque.django",
            "django",
            "monque.django needs Django; install it with: pip install 'pymonque[django]'",
        ),
        (
            "monque.web",
            "starlette",
            "monque.web needs Starlette; install it with: pip install 'pymonque[web]'",
        ),
        (
            "monque.sentry",
            "sentry_sdk",
            "monque.sentry needs sentry-sdk; install it with: pip install 'pymonque[sentry]'",
        ),
        (
            "monque.pydantic_ai",
            "pydantic_ai",
            "monque.pydantic_ai needs pydantic-ai-slim; install it with: pip install 'pymonque[pydantic-ai]'",
        ),
    ],
)
def test_without_what_an_extra_installs_its_module_says_so(
    tmp_path: Path, module: str, needed: str, advice: str
) -> None:
    """As if the package were not there."""
    (tmp_path / f"{needed}.py").write_text(f"raise ModuleNotFoundError('No module', name={needed!r})")
    program = subprocess.run(
        [sys.executable, "-c", f"import {module}"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )

    assert program.returncode == 1
    assert program.stderr.endswith(f"ModuleNotFoundError: {advice}\n")
