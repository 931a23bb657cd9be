"""The first release (0.1.0): its code, where the history of this checkout has it, and what it wrote.

`python -m tests.support.first_release` writes the golden documents anew, with the code of that release.
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC
from pathlib import Path
from typing import Any

from bson import json_util

from bench.checkouts import HERE, checkout, environment
from monque.embedded import EmbeddedMongo

COMMIT = "c7dec4f8ffb5da4a52c9c3e03f1732f59346a39c"
_FILE = HERE / "tests" / "interop" / "fixtures" / "first-release.json"
_WRITER = HERE / "tests" / "support" / "programs" / "golden_writer.py"


def golden() -> dict[str, Any]:
    """The `jobs` by what is special about each, and the `indexes`."""
    return parsed(_FILE.read_text())


def parsed(text: str) -> dict[str, Any]:
    """What `golden_writer.py` printed."""
    options = json_util.JSONOptions(tz_aware=True, tzinfo=UTC)
    found: dict[str, Any] = json_util.loads(text, json_options=options)
    return found


def write(file: Path = _FILE) -> None:
    """Let the first release write every kind of document, and keep them."""
    with EmbeddedMongo(temporary=True) as server, checkout(COMMIT) as tree:
        host, _, query = server.uri.partition("/?")
        command = [sys.executable, str(_WRITER), f"{host}/golden?{query}"]
        done = subprocess.run(command, env=environment(tree), check=True, stdout=subprocess.PIPE)
    file.write_text(_readable(json.loads(done.stdout)))


def _readable(found: dict[str, Any]) -> str:
    """A line for each document and each index."""
    jobs = ",\n".join(f"{json.dumps(which)}: {json.dumps(job)}" for which, job in found["jobs"].items())
    indexes = ",\n".join(map(json.dumps, found["indexes"]))
    return f'{{"jobs": {{\n{jobs}\n}}, "indexes": [\n{indexes}\n]}}\n'


if __name__ == "__main__":
    write()
