"""Where handlers run that must not block the event loop: in threads, and in child processes."""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import TYPE_CHECKING

from monque._attempts import remote_trace_of
from monque._connect.deadlines import without_deadline
from monque._engine.claimed import Run
from monque._engine.threads import ThreadPool
from monque._options import Options

if TYPE_CHECKING:
    from monque._engine.process import Child
    from monque._engine.processes import Children

logger = logging.getLogger("monque")

# Seconds before a job is put back for which no child could be started. Half would claim and put back twice as
# often, to no avail; with twice, jobs wait longer when there is room again.
_PAUSE = 1.0

# This process, or the machine, has too many open files or processes, or too little memory.
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)


class Places:
    """The threads and the child processes of one instance.

    Threads outlive a stop if their handlers do. Children end with the runner; the next one starts others.
    """

    def __init__(self) -> None:
        self.threads = ThreadPool()
        self.children: Children | None = None
        """Made by the first job that needs one."""
        # What children do beside runs must not see the context variables of the run that started them.
        self._variables = without_deadline()
        self._is_short = False
        """The last child could not be started, and the log says so."""

    async def child_for(self, run: Run, options: Options) -> Child | None:
        """A child that has imported the handler of a run; None if none can be started now.

        That is a trouble of this machine, not of the job. It returns after a pause, so that a job which is
        put back is not claimed again at once.

        Raises:
            BaseException: See `Children.take`.
        """
        try:
            child = await self._need_children(options).take(run)
        except OSError as error:
            if error.errno not in _SHORTAGES or remote_trace_of(error) is not None:
                raise
            if not self._is_short:
                message = "no child process can be started (%s); jobs that need one are put back until it can"
                logger.warning(message, error.strerror)
            self._is_short = True
            await asyncio.sleep(_PAUSE)
            return None
        self._is_short = False
        return child

    def _need_children(self, options: Options) -> Children:
        """The child processes; who has no handler for them does not import what they need."""
        if self.children is None:
            from monque._engine.processes import Children

            self.children = Children(options, self._variables.copy())
        return self.children

    async def end_children(self) -> None:
        """No handler runs any more: end the child processes."""
        children, self.children = self.children, None
        if children is not None:
            await children.end()

    def kill_children(self) -> None:
        """The event loop is gone, and nothing of it can be awaited: end the child processes at once."""
        if self.children is not None:
            self.children.kill()
