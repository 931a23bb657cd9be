"""Which Monque a worker belongs to, so that `worker.enqueue` knows where to store."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from monque._errors import ConfigurationError

if TYPE_CHECKING:
    from datetime import datetime, timedelta, tzinfo

    from monque._sessions import Session


class EnqueueOptions(TypedDict, total=False):
    """The keyword arguments of `Worker.enqueue`: those of `Monque.enqueue`."""

    run_at: datetime | None
    delay: timedelta | None
    unique_key: str | None
    session: Session | None


class ScheduleOptions(TypedDict, total=False):
    """The keyword arguments of `Worker.schedule`: those of `Monque.schedule`."""

    unique_key: str | None
    timezone: str | tzinfo
    session: Session | None


@dataclass(slots=True, eq=False)
class Bond:
    """That workers belong to one Monque. It does not keep the Monque alive."""

    owner: weakref.ref[Any]
    blocks: bool = False
    """The owner is a `SyncMonque`."""
    is_closed: bool = False
    """The owner was closed and counts only if there is no other, as in a series of tests."""

    def hand_over(self, blocking: object) -> None:
        """Let the `SyncMonque` around the owner take its place."""
        self.owner, self.blocks = weakref.ref(blocking), True


class Home:
    """The Monques that one worker, or all workers of a `Workers()`, belong to."""

    __slots__ = ("_bonds",)

    def __init__(self) -> None:
        # Replaced as a whole and never changed: other threads may be reading it.
        self._bonds: tuple[Bond, ...] = ()

    def bind(self, owner: object) -> Bond:
        """Let the workers belong to *owner*, too."""
        bond = Bond(weakref.ref(owner))
        self._bonds = (*self._alive(), bond)
        return bond

    def share(self, other: Home) -> None:
        """Let the workers belong to whatever those of *other* belong to."""
        self._bonds = tuple(dict.fromkeys((*self._alive(), *other._alive())))

    def owner(self, name: str, advice: str, *, blocking: bool = False) -> Any:
        """The one Monque that the worker of this name belongs to; with *blocking*, the one `SyncMonque`.

        *advice* says how the worker comes to belong to one.

        Raises:
            ConfigurationError: There is none, there are several, or it is of the other kind.
        """
        bonds = self._alive()
        bonds = [bond for bond in bonds if not bond.is_closed] or bonds
        owner = bonds[0].owner() if bonds else None
        if owner is None:
            raise ConfigurationError(
                f"the worker {name!r} belongs to no Monque yet; {advice}, or name the Monque: "
                "monque.enqueue(worker, ...)"
            )
        if len(bonds) > 1:
            raise ConfigurationError(
                f"the worker {name!r} belongs to {len(bonds)} Monques; name the one that is meant: "
                "monque.enqueue(worker, ...)"
            )
        if bonds[0].blocks is not blocking:
            raise ConfigurationError(_wrong_kind(name, blocking=blocking))
        return owner

    def _alive(self) -> list[Bond]:
        return [bond for bond in self._bonds if bond.owner() is not None]


def _wrong_kind(name: str, *, blocking: bool) -> str:
    if blocking:
        return (
            f"the worker {name!r} was declared for a SyncMonque and belongs to a Monque, which does not "
            "block; declare it in a Workers(), or call `await monque.enqueue(worker, ...)`"
        )
    return (
        f"the worker {name!r} belongs to a SyncMonque, which blocks, so there is nothing to await; declare "
        "it in a SyncWorkers(), or call `monque.enqueue(worker, ...)`"
    )
