"""The place for what start hooks and a lifespan make."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any


class State(SimpleNamespace):
    """A namespace: set what you like on it, and read it in every handler through `job.state`.

    Examples:
        >>> monque.state.http = httpx.AsyncClient()
        >>> client: httpx.AsyncClient = job.state.http
    """

    def update(self, values: Mapping[str, Any]) -> None:
        """Set all of these, as attributes; what is there under other names stays."""
        vars(self).update(values)

    if not TYPE_CHECKING:  # a type checker knows that every attribute may be there, and is of any type

        def __getattr__(self, name: str) -> Any:
            # Python comes here only for a name that is not there.
            there = ", ".join(sorted(vars(self)))
            raise AttributeError(
                f"the state has no {name!r}; {f'it has {there}' if there else 'it is empty'}. A start hook "
                "or the lifespan sets it before the first job runs",
                name=name,
                obj=self,
            )
