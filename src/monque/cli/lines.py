"""Payloads as JSON: one on the command line, or a file with one a line, read as it is needed."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from json import JSONDecodeError
from pathlib import Path
from typing import IO, Any

import click

from monque._views.text import strict_json

# The most bytes of a line. No payload above 16 MB can be stored, and escapes make JSON at most six times as
# long as its text. Without a limit, a file that has no lines would be read into memory whole.
_LONGEST_LINE = 96 * 1024 * 1024

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class BadLineError(Exception):
    """A line cannot be used; the message says which, and why."""


class Lines:
    """The payloads of a file, and how far it was read."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file = file
        self._name = name
        self.number = 0
        """The line that was read last, from 1."""
        self.read = 0
        """The bytes of all lines that were read."""

    @property
    def place(self) -> str:
        """The place of the last payload, for a message."""
        return f"line {self.number:,} of {self._name}"

    @property
    def size(self) -> int | None:
        """The bytes of the file, if it is one and not a pipe."""
        try:
            status = os.fstat(self._file.fileno())
        except OSError:  # not backed by a file
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def payloads(self) -> Iterator[Any]:
        """The value of each line; blank lines are skipped.

        Raises:
            BadLineError: A line cannot be read, or is not JSON.
        """
        while line := self._next_line():
            if line.strip():
                yield self._value(line)

    def _next_line(self) -> bytes:
        self.number += 1
        try:
            line = self._file.readline(_LONGEST_LINE + 1)
        except OSError as error:
            raise BadLineError(f"cannot read {self.place}: {error.strerror or error}") from error
        self.read += len(line)
        if len(line) > _LONGEST_LINE:
            raise BadLineError(f"{self.place} is longer than {_LONGEST_LINE:,} bytes; write one value a line")
        return line.removeprefix(_BYTE_ORDER_MARK) if self.number == 1 else line

    def _value(self, line: bytes) -> Any:
        try:
            return strict_json(line.decode())
        except UnicodeDecodeError as error:
            raise BadLineError(f"{self.place} is not UTF-8 ({error.reason})") from error
        except (ValueError, RecursionError) as error:
            # The text of a JSON error counts lines, too, and within this one.
            reason = f"{error.msg}, column {error.colno}" if isinstance(error, JSONDecodeError) else error
            raise BadLineError(
                f"{self.place} is not valid JSON ({reason}); write one value a line"
            ) from error


@contextmanager
def open_lines(path: str) -> Iterator[Lines]:
    """Open a file, or standard input for `-`."""
    if path == "-":
        yield Lines(sys.stdin.buffer, "standard input")
        return
    try:
        file = Path(path).open("rb")  # noqa: SIM115 - only an error of opening it is about the path
    except OSError as error:
        raise click.UsageError(f"cannot read {path}: {error.strerror or error}") from error
    with file:
        yield Lines(file, path)


def payload(given: str) -> Any:
    """JSON on the command line, or `-` for standard input."""
    text = sys.stdin.read() if given == "-" else given
    try:
        return strict_json(text)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(
            f'not valid JSON ({error}); quote it for the shell, for example \'{{"to": "ada"}}\''
        ) from error
