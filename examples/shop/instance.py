"""One worker instance of the shop, as a process: `python -m examples.shop.instance URI NUMBER RELEASE SEED`.

It ends with the shop, however that ends: the shop holds the other end of its standard input.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from dataclasses import replace

from monque import Monque

from .catalog import OPTIONS
from .handlers import workers

# Seconds until it ends by force. Its jobs have one second to finish.
_LATEST = 3.0


async def work(uri: str, number: str, release: str, seed: int) -> None:
    """Process jobs until a signal comes."""
    options = replace(OPTIONS, instance_id=f"shop-{number}", release=release)
    async with Monque(uri, options=options, workers=workers(seed, release)) as monque:
        await monque.run()


def end_with_the_shop() -> None:
    """Wait for the end of the standard input, then stop this process."""
    os.read(sys.stdin.fileno(), 1)  # nothing is ever written there
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(_LATEST)
    os._exit(1)


def main() -> None:
    """Run the instance that the arguments describe."""
    # Jobs of the shop fail on purpose, and the dashboard shows how.
    logging.disable(logging.CRITICAL)
    threading.Thread(target=end_with_the_shop, daemon=True).start()
    uri, number, release, seed = sys.argv[1:]
    asyncio.run(work(uri, number, release, int(seed)))


if __name__ == "__main__":
    main()
