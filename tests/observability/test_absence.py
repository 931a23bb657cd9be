"""What is not installed, or not configured, is neither missed nor loaded."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

NEITHER = ("opentelemetry", "prometheus_client")


def run(program: str, *arguments: str) -> str:
    """What a program of its own prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_everything_works_where_opentelemetry_and_prometheus_are_not_installed(uri: str) -> None:
    printed = run(
        """
        import asyncio, sys

        class Missing:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] in ("opentelemetry", "prometheus_client"):
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)

        sys.meta_path.insert(0, Missing())

        from monque import Job, Monque, NewJob

        async def main():
            async with Monque(sys.argv[1]) as monque:
                @monque.worker("greet")
                async def greet(job: Job[str]) -> None:
                    print("hello", job.data)

                await monque.enqueue("greet", "ada")
                await monque.enqueue_many([NewJob("greet", "bob")])
                await monque.schedule("0 0 * * *", "nightly")
                await monque.run_until_idle()
                stored = await monque.database["monque_jobs"].find().to_list()
                print(any("traceparent" in job for job in stored))

        asyncio.run(main())
        try:
            import monque.prometheus
        except ImportError as error:
            print(error)
        """,
        uri,
    )

    *greetings, is_traced, refusal = printed.splitlines()
    assert sorted(greetings) == ["hello ada", "hello bob"]
    assert is_traced == "False"
    assert refusal == (
        "monque.prometheus needs prometheus_client; install it with: pip install 'pymonque[prometheus]'"
    )


def test_a_program_that_uses_neither_loads_neither(uri: str) -> None:
    printed = run(
        """
        import asyncio, sys
        from monque import Job, JobLogFilter, Monque, Observer, current_job

        async def main():
            async with Monque(sys.argv[1]) as monque:
                @monque.worker("greet")
                async def greet(job: Job[str]) -> None: ...

                await monque.enqueue("greet", "ada")
                await monque.run_until_idle()

        asyncio.run(main())
        print(*{name.partition(".")[0] for name in sys.modules})
        """,
        uri,
    )

    assert set(printed.split()) & set(NEITHER) == set()


def test_a_program_that_stores_and_runs_jobs_loads_only_what_its_instance_writes_for_operators(
    uri: str,
) -> None:
    printed = run(
        """
        import asyncio, sys
        from monque import Job, Monque

        async def main():
            async with Monque(sys.argv[1]) as monque:
                @monque.worker("greet")
                async def greet(job: Job[str]) -> None: ...

                await monque.enqueue("greet", "ada")
                await monque.run_until_idle()
                print(*(name for name in sys.modules if name.startswith("monque._ops.")))
                await monque.list_jobs()
                print(*(name for name in sys.modules if name.startswith("monque._ops.")))

        asyncio.run(main())
        """,
        uri,
    )

    before, after = (set(line.replace("monque._ops.", "").split()) for line in printed.splitlines())
    assert before == {"companion", "companions", "counts", "ops", "register", "trends"}
    assert after == {*before, "durations", "filters", "lists"}


@pytest.mark.parametrize("arguments", [["--help"], ["worker", "--help"]])
def test_the_help_of_the_command_loads_neither(arguments: list[str]) -> None:
    printed = run(
        """
        import sys
        from monque.cli.commands import monque

        monque(sys.argv[1:], standalone_mode=False)
        print(*{name.partition(".")[0] for name in sys.modules})
        """,
        *arguments,
    )

    assert set(printed.splitlines()[-1].split()) & set(NEITHER) == set()


def test_nothing_is_counted_or_attended_while_nobody_looks_on(make_monque: Callable[..., Any]) -> None:
    """OpenTelemetry is loaded in this process, and configured by nobody."""
    assert "opentelemetry.trace" in sys.modules
    assert make_monque()._telemetry.audience() is None
