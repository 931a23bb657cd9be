"""A program of the benchmark in a process of its own, which answers line by line."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from typing import Self


class ProgramError(Exception):
    """The program ended before it answered; the text is the last line of its error output."""


class Process:
    """`python -m MODULE ARGUMENTS`, from its first line of output, the greeting, until the block ends.

    It ends when its input is closed, also if this process dies.
    """

    def __init__(self, module: str, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self._command = [sys.executable, "-m", module, *arguments]
        self._environment = environment
        # A file, not a pipe: nobody reads it before the end, and a full pipe would block the program.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end of the block
        self.greeting = ""

    async def __aenter__(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=pipe, stdout=pipe, stderr=self._errors, env=self._environment
        )
        try:
            self.greeting = await self._answer()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.communicate()
        self._errors.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, line: str) -> None:
        """Write a line to it."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    async def ask(self, line: str) -> str:
        """Write a line to it, and return the line that it answers."""
        self.tell(line)
        return await self._answer()

    async def _answer(self) -> str:
        assert self._process.stdout is not None
        answer = (await self._process.stdout.readline()).decode().strip()
        if answer:
            return answer
        await self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode().strip().splitlines()
        raise ProgramError(lines[-1] if lines else f"exit code {self._process.returncode}")
