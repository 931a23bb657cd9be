"""Where handlers run that must not block the event loop: in threads, and in child processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monque._connect.deadlines import without_deadline
from monque._engine.threads import ThreadPool
from monque._options import Options

if TYPE_CHECKING:
    from monque._engine.processes import Children


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

    def need_children(self, options: Options) -> Children:
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
