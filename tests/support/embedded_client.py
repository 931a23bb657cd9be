"""A process that uses the embedded server: says what it got, and lets go when its input ends.

python embedded_client.py (DATA_DIR | --temporary) [--with-program | --with-fork]
"""

import json
import os
import signal
import subprocess
import sys

from monque.embedded import EmbeddedMongo


def main() -> None:
    place, *options = sys.argv[1:]
    with EmbeddedMongo(temporary=True) if place == "--temporary" else EmbeddedMongo(place) as server:
        child = start_child(options)
        print(json.dumps({"uri": server.uri, "data_dir": str(server.data_dir), "child": child}), flush=True)
        sys.stdin.read()


def start_child(options: list[str]) -> int | None:
    if options == ["--with-program"]:
        return subprocess.Popen(["sleep", "100"], close_fds=False).pid
    if options == ["--with-fork"]:
        child = os.fork()
        if not child:
            signal.pause()
        return child
    return None


if __name__ == "__main__":
    main()
