"""The files of other commits, unpacked for a while."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent.parent


def has_commit(ref: str, file: str | None = None) -> bool:
    """Whether this checkout's history has a commit, branch or tag of this name; and this *file* in it."""
    if not (HERE / ".git").exists():  # git would go on and find the repository around this folder
        return False
    what = f"{ref}^{{commit}}" if file is None else f"{ref}:{file}"
    known = ["git", "rev-parse", "--quiet", "--verify", what]
    return subprocess.run(known, cwd=HERE, capture_output=True).returncode == 0


@contextmanager
def checkout(ref: str) -> Iterator[Path]:
    """A folder with the files of *ref*.

    It is no `git worktree`: git would remember that one if this process is killed.
    """
    packed = subprocess.run(["git", "archive", ref], cwd=HERE, check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory(prefix="monque-checkout-") as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as files:
            # Python 3.11.3 and older have no filters; 3.12 warns if none is named.
            files.extraction_filter = getattr(tarfile, "data_filter", None)
            files.extractall(folder)  # noqa: S202 - they are our own
        yield Path(folder)


def environment(tree: Path, *more: Path) -> dict[str, str]:
    """The variables of a process that imports the library of *tree*, and modules in the folders *more*."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [tree / "src", *more]))}
