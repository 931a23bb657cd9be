"""Runs the tests in a row, and tells what came of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from matrix import environments
from matrix.environments import NotHereError
from matrix.rows import ROOT, SHOWN, Row, left_out

# Warnings are errors. Old packages use what newer ones deprecate, and leave sockets to the garbage collector:
# that is not ours to mend.
_QUIET = [
    f"-Wdefault::{kind}"
    for kind in ("DeprecationWarning", "PendingDeprecationWarning", "pytest.PytestUnraisableExceptionWarning")
]

_END = re.compile(r"(\d+) (passed|failed|errors?|skipped)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a row."""

    row: Row
    verdict: str
    """`passed`, `failed`, `not here`, `not installed` or `too slow`."""
    what: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    server: str = ""
    seconds: float = 0.0
    output: str = ""

    @property
    def is_fault(self) -> bool:
        """Whether somebody has to look at it. What a machine does not have is nobody's fault."""
        return self.verdict not in ("passed", "not here")


def run(row: Row, tests: Sequence[str], *, jobs: int, limit: float) -> Result:
    """Install a row and run the tests in it."""
    try:
        python = environments.install(row)
        versions = environments.versions_of(python)
        server = environments.server_version(python, row.mongod)
    except NotHereError as error:
        return Result(row=row, verdict="not here", what=str(error))
    except subprocess.SubprocessError as error:
        said = str(getattr(error, "stderr", "") or error)
        return Result(row=row, verdict="not installed", what=_last_line(said), output=said)
    except OSError as error:
        return Result(row=row, verdict="not installed", what=str(error))
    began = time.monotonic()
    output, code = _pytest(python, row, tests, jobs=jobs, limit=limit)
    return Result(
        row=row,
        verdict="too slow" if code is None else "passed" if code == 0 else "failed",
        what=summary(output),
        versions=versions,
        server=server,
        seconds=time.monotonic() - began,
        output=output,
    )


def _pytest(
    python: Path, row: Row, tests: Sequence[str], *, jobs: int, limit: float
) -> tuple[str, int | None]:
    """What pytest printed, and its exit code; None if it was ended because it took too long.

    It prints into a file beside the environment, so that one can follow it.
    """
    ignored = [f"--ignore={path}" for path in left_out(row.versions, tests)]
    parallel = ["-n", str(jobs), "--dist", "worksteal"] if jobs > 1 else []
    quiet = _QUIET if row.versions == "lowest" else []
    options = ["-q", "-p", "no:cacheprovider", *quiet, *parallel, *ignored]
    command = [str(python), "-m", "pytest", *options, *tests]
    environment = {**os.environ, **({} if row.mongod is None else {"MONQUE_TEST_MONGOD": row.mongod})}
    log = environments.HOME / f"{row.name.replace(os.sep, '_')}.log"
    with log.open("w") as written:
        # A session of its own: whatever the tests have started ends with them.
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=written,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return log.read_text(errors="replace"), code


def summary(output: str) -> str:
    """The counts in the last line of pytest, such as `3 failed, 200 passed`."""
    return ", ".join(f"{count} {what}" for count, what in _END.findall(_last_line(output)))


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def table(results: Sequence[Result]) -> str:
    """All results as a table of Markdown."""
    head = ["Python", "Versions", "MongoDB", *SHOWN, "Tests"]
    lines = [head, ["---"] * len(head), *map(_cells, results)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cells(result: Result) -> list[str]:
    found = result.versions
    shown = [found.get("python", result.row.python), result.row.versions, result.server or "–"]
    verdict = result.verdict if result.verdict == "passed" else f"**{result.verdict}**"
    told = f"{verdict}: {result.what}" if result.what else verdict
    return [*shown, *(found.get(name, "–") for name in SHOWN), told.replace("|", "/")]
