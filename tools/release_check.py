"""Try the files in dist/ as a user would, before they are published: `make release-check`.

The wheel and the sdist are installed each in an environment of its own, far from this checkout. There the
program of the README runs and prints what the README says, and public names and signatures are those of the
golden file. The description is rendered as a package index does.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
# The first program of the README, and what it prints.
PROGRAM = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
NAMES = "from golden.test_public_names import test_public_names_and_signatures_have_not_changed as it; it()"
PAGES = (
    "from importlib.resources import files; folder = files('monque') / 'web/static';"
    "missing = [n for n in ('index.html', 'LICENSES.md') if not (folder / n).is_file()];"
    "assert not missing, missing"
)


class ReleaseError(Exception):
    """Something that must not be published."""


def main() -> int:
    version = re.findall(r'__version__ = "(.+)"', (ROOT / "src/monque/_version.py").read_text())[0]
    artefacts = (DIST / f"pymonque-{version}-py3-none-any.whl", DIST / f"pymonque-{version}.tar.gz")
    try:
        check_version(version)
        check_description(artefacts[0])
        for artefact in artefacts:
            check_installed(artefact, version)
    except ReleaseError as error:
        print(f"not ready: {error}", file=sys.stderr)
        return 1
    print(f"{version} is ready to be tagged: git tag v{version}")
    return 0


def check_version(version: str) -> None:
    """It is a release, and the first one of the changes."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise ReleaseError(f"{version} in src/monque/_version.py is no release")
    first = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    if first != version:
        raise ReleaseError(f"CHANGELOG.md begins with {first}, and src/monque/_version.py says {version}")
    said(f"the changes begin with {version}")


def check_description(wheel: Path) -> None:
    """An index can show it; and its links are absolute, if the build knew the addresses."""
    from readme_renderer import markdown

    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        package = message_from_bytes(archive.read(name))
    text = package.get_payload(decode=True)
    assert isinstance(text, bytes)
    page = markdown.render(text.decode())
    if page is None:
        raise ReleaseError("an index cannot render the README")
    relative = [link for link in re.findall(r'(?:href|src)="([^"#][^"]*)"', page) if "://" not in link]
    if not package.get_all("Project-URL"):
        said("the description renders; its links are relative: set MONQUE_REPOSITORY_URL and MONQUE_SITE_URL")
    elif relative:
        raise ReleaseError(f"links of the description lead nowhere: {', '.join(relative)}")
    else:
        said("the description renders, with absolute links")


def check_installed(artefact: Path, version: str) -> None:
    """In an environment that has nothing else, far from this checkout."""
    with tempfile.TemporaryDirectory(prefix="monque-release-") as name:
        folder = Path(name)
        venv.create(folder / "environment", with_pip=True)
        python = folder / "environment/bin/python"
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        extras = ",".join(project["optional-dependencies"])
        run(folder, python, "-m", "pip", "install", "--quiet", f"{artefact}[{extras}]")
        installed = run(folder, python, "-m", "monque", "--version")
        if version not in installed:
            raise ReleaseError(f"{artefact.name} says that it is {installed.strip()}")
        run(folder, python, "-c", PAGES)
        program, expected = PROGRAM.findall((ROOT / "README.md").read_text())[0]
        (folder / "program.py").write_text(program)
        printed = run(folder, python, "program.py")
        if printed != expected:
            raise ReleaseError(f"with {artefact.name} the program of the README prints\n{printed}")
        run(folder, python, "-c", NAMES, PYTHONPATH=str(ROOT / "tests"))
    said(f"{artefact.name} can be installed, runs the program of the README, and has the golden names")


def run(folder: Path, *command: str | Path, **more: str) -> str:
    """Return what a command prints; it sees nothing of this checkout and none of the user's data."""
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "MONQUE_URI")}
    data = {"MONQUE_DATA_DIR": str(folder / "data"), "PYTHONDONTWRITEBYTECODE": "1", **more}
    done = subprocess.run(command, cwd=folder, env={**kept, **data}, capture_output=True, text=True)
    if done.returncode:
        words = " ".join(map(str, command[1:4]))
        raise ReleaseError(f"{words} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def said(line: str) -> None:
    print(f"  {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
