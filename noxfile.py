"""`make matrix`: the tests in each row of the compatibility matrix, and the table of what came of them.

Of the environment, ROWS chooses rows by parts of their names and TESTS chooses tests. WRITE puts the table
into the installation page.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import nox

from tools.matrix import PAGE, SHOWN, Result, counted, left_out, mongods, requirements, rows, table, write

WORDS, TESTS = os.environ.get("ROWS", "").split(), os.environ.get("TESTS", "").split()
SERVERS = mongods(os.environ.get("MONQUE_TEST_MONGODS", ""))
RESULTS = [Result(row=row) for row in rows(SERVERS) if row.is_meant(WORDS)]
if not RESULTS:
    sys.exit(f"no row has one of {WORDS} in its name")

nox.options.envdir = ".cache/matrix"
nox.options.reuse_venv = "yes"

# Warnings are errors. Old packages use what newer ones deprecate, and leave sockets to the garbage collector:
# that is not ours to mend.
QUIET = [
    f"-Wdefault::{kind}"
    for kind in ("DeprecationWarning", "PendingDeprecationWarning", "pytest.PytestUnraisableExceptionWarning")
]


@nox.session(venv_backend="venv")
@nox.parametrize(
    "python,result", [(each.row.python, each) for each in RESULTS], ids=[each.row.name for each in RESULTS]
)
def tests(session: nox.Session, result: Result) -> None:
    """Install a row and run the tests in it."""
    row = result.row
    result.verdict = "not installed"
    newer = ["--upgrade", "--upgrade-strategy", "eager"] if row.versions == "newest" else []
    session.install(*newer, *requirements(row))
    session.install("--no-deps", "--no-build-isolation", "--editable", ".")
    mongod = row.mongod or asked(session, "from monque.embedded import find_mongod; print(find_mongod())")
    said = session.run(mongod, "--version", silent=True, external=True) or ""
    result.server = said.splitlines()[0].rpartition("v")[2]
    result.versions = json.loads(asked(session, ASKS_VERSIONS))
    result.verdict = "failed"
    report = Path(session.create_tmp()) / "report.xml"
    options = ["-q", "-p", "no:cacheprovider", f"--junitxml={report}", "-n", os.environ.get("JOBS", "1")]
    options += ["--dist=worksteal", *(f"--ignore={path}" for path in left_out(row.versions, TESTS))]
    options += QUIET if row.versions == "lowest" else []
    environment = {} if row.mongod is None else {"MONQUE_TEST_MONGOD": row.mongod}
    try:
        session.run("python", "-m", "pytest", *options, *TESTS, env=environment)
        result.verdict = "passed"
    finally:
        result.counts = counted(report.read_text()) if report.exists() else ""


ASKS_VERSIONS = (
    "import json, platform; from importlib.metadata import version;"
    f"print(json.dumps({{'python': platform.python_version(), **{{n: version(n) for n in {SHOWN!r}}}}}))"
)


def asked(session: nox.Session, program: str) -> str:
    """Return what a line of Python prints in the row's environment."""
    return (session.run("python", "-c", program, silent=True) or "").strip()


@nox.session(name="table", python=False)
def show(_: nox.Session) -> None:
    """Print what came of the rows."""
    print(table(RESULTS))
    if os.environ.get("WRITE"):
        write(PAGE, table(RESULTS), " ".join(TESTS), datetime.now(UTC))
