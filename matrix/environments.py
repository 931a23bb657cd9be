"""Installs the environment of a row: a Python, and the versions that the row asks for."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

from matrix.rows import ROOT, SHOWN, Row, requirements

HOME = ROOT / ".cache" / "matrix"
"""Where environments and logs are."""

# Downloads on a slow line. Half would fail there; with twice, a hanging index delays the other rows.
_INSTALL_LIMIT = 1200.0


class NotHereError(Exception):
    """The row cannot run on this machine; the message says why."""


def find_python(version: str) -> Path:
    """A Python of this version: on the PATH, among those of pyenv, or one that uv has or can install.

    Raises:
        NotHereError: There is none.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(f"python{version}"), *map(str, sorted(pyenv.glob(f"{version}.*/bin/python")))]
    for candidate in candidates:
        if candidate is not None and _version_of(candidate) == version:
            return Path(candidate)
    if (uv := shutil.which("uv")) is not None:
        subprocess.run(
            [uv, "python", "install", "--quiet", version], check=False, capture_output=True, timeout=300
        )
        found = subprocess.run([uv, "python", "find", version], check=False, capture_output=True, text=True)
        if found.returncode == 0 and _version_of(found.stdout.strip()) == version:
            return Path(found.stdout.strip())
    raise NotHereError(f"no python{version} here")


def _version_of(python: str) -> str | None:
    # A shim of pyenv may be on the PATH and lead nowhere.
    says = "import sys; print(f'{sys.version_info.major}.{sys.version_info.minor}')"
    done = subprocess.run([python, "-c", says], check=False, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def install(row: Row) -> Path:
    """The Python of an environment that has what the row asks for.

    Raises:
        NotHereError: There is no such Python here.
        subprocess.SubprocessError: pip could not install it, or took too long.
    """
    place = HOME / f"{row.python}-{row.versions}"
    python, stamp = place / "bin" / "python", place / "installed"
    wanted = requirements(row)
    digest = hashlib.sha256("\n".join(wanted).encode()).hexdigest()
    if row.versions == "lowest" and stamp.exists() and stamp.read_text() == digest:
        return python
    if not python.exists():
        subprocess.run([find_python(row.python), "-m", "venv", place], check=True, capture_output=True)
    file = place / "requirements.txt"
    file.write_text("\n".join(wanted))
    newer = ["--upgrade", "--upgrade-strategy", "eager"] if row.versions == "newest" else []
    _pip(python, *newer, "-r", str(file))
    _pip(python, "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    stamp.write_text(digest)
    return python


def _pip(python: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=_INSTALL_LIMIT, cwd=ROOT)


def versions_of(python: Path) -> dict[str, str]:
    """The installed versions of the packages that the table shows."""
    says = (
        "import json, platform; from importlib.metadata import version;"
        f"print(json.dumps({{'python': platform.python_version(), **{{n: version(n) for n in {SHOWN!r}}}}}))"
    )
    done = subprocess.run([python, "-c", says], check=True, capture_output=True, text=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def server_version(python: Path, mongod: str | None) -> str:
    """What the server of a row says of itself, such as 6.0.5."""
    says = "from monque.embedded import find_mongod; print(find_mongod())"
    if mongod is None:
        mongod = subprocess.run(
            [python, "-c", says], check=True, capture_output=True, text=True
        ).stdout.strip()
    done = subprocess.run([mongod, "--version"], check=True, capture_output=True, text=True)
    return done.stdout.splitlines()[0].rpartition("v")[2].strip()
