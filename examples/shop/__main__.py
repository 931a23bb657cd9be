"""`python -m examples.shop`: what `monque demo --web` does, without the command line's packages."""

from __future__ import annotations

import argparse
import sys

from .opening import Shop, run


def main() -> int:
    """Run the shop that the arguments describe; the exit code."""
    parser = argparse.ArgumentParser(
        prog="examples.shop", description="A shop that never sleeps, to look at with the dashboard."
    )
    parser.add_argument("--seed", type=int, default=Shop().seed, help="what is ordered and what fails")
    parser.add_argument("--quiet-hours", action="store_true", help="a fifth of the traffic, no bursts")
    parser.add_argument("--port", type=int, help="default: 8787, or any free one if that is taken")
    given = parser.parse_args()
    return run(Shop(seed=given.seed, quiet=given.quiet_hours, port=given.port))


if __name__ == "__main__":
    sys.exit(main())
