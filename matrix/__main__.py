"""`python -m matrix`: runs all rows, or those that are named, and prints the table."""

from __future__ import annotations

import argparse
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from matrix.rows import ROOT, mongods, rows
from matrix.run import Result, run, table

PAGE = ROOT / "docs" / "getting-started" / "installation.md"
BEGIN, END = "<!-- matrix: begin -->", "<!-- matrix: end -->"


def main() -> int:
    options = _options()
    wanted = [
        row for row in rows(mongods(os.environ.get("MONQUE_TEST_MONGODS", ""))) if row.is_meant(options.rows)
    ]
    if options.list or not wanted:
        print("\n".join(row.name for row in wanted) or f"no row has one of {options.rows} in its name")
        return 0 if wanted else 2
    results: list[Result] = []
    for row in wanted:
        print(f"{row.name} ...", file=sys.stderr, flush=True)
        results.append(result := run(row, options.tests, jobs=options.jobs, limit=options.minutes * 60))
        if result.is_fault:
            print(result.output[-8000:], file=sys.stderr)
        print(
            f"{row.name}: {result.verdict} {result.what} ({result.seconds:.0f} s)",
            file=sys.stderr,
            flush=True,
        )
    print(table(results))
    if options.write:
        write(PAGE, table(results), " ".join(options.tests), datetime.now(UTC))
    return 1 if any(result.is_fault for result in results) else 0


def write(page: Path, shown: str, tests: str, now: datetime) -> None:
    """Put the table into the page, with its date."""
    text = page.read_text()
    which = f"`{tests}`" if tests else "all tests but the slow ones"
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    page.write_text(f"{before}{BEGIN}\nSeen on {now:%Y-%m-%d}, {which}:\n\n{shown}\n{END}{after}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m matrix", description=__doc__)
    parser.add_argument(
        "--rows", nargs="*", default=[], help="only rows with one of these words in their names"
    )
    parser.add_argument("--tests", nargs="*", default=[], help="which tests; default: all but the slow ones")
    parser.add_argument("--jobs", type=int, default=1, help="test processes of a row")
    parser.add_argument("--minutes", type=float, default=40, help="how long the tests of a row may take")
    parser.add_argument("--list", action="store_true", help="print the names of the rows, and run nothing")
    parser.add_argument("--write", action="store_true", help="put the table into the installation page")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
