"""The Monque that a worker belongs to, in which `worker.enqueue` stores."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from monque._values.errors import ConfigurationError
from monque._values.schedule import ScheduleSettings
from monque._values.settings import JobSettings
from monque._values.state import State
from monque._workers.hooks import calling

if TYPE_CHECKING:
    from datetime import datetime, timedelta, tzinfo

    from monque._connect.sessions import Session


class EnqueueOptions(JobSettings, total=False):
    """The keyword arguments of `Worker.enqueue`: those of `Monque.enqueue`, its `JobSettings` included."""

    run_at: datetime | None
    delay: timedelta | None
    unique_key: str | None
    session: Session | None


class ScheduleOptions(JobSettings, ScheduleSettings, total=False):
    """The keyword arguments of `Worker.schedule`: those of `Monque.schedule`, its `JobSettings` included."""

    unique_key: str | None
    timezone: str | tzinfo
    session: Session | None


@dataclass(slots=True, eq=False)
class Owner:
    """A Monque that workers belong to; they do not keep it alive."""

    monque: weakref.ref[Any]
    state: State
    blocks: bool = False
    """It is a `SyncMonque`."""
    is_closed: bool = False
    """It was closed and counts only if there is no other, as in a series of tests."""

    def hand_over(self, blocking: object) -> None:
        """Let the `SyncMonque` around it take its place."""
        self.monque, self.blocks = weakref.ref(blocking), True


class Home:
    """The Monques that one worker, or all workers of a `Workers()`, belong to."""

    __slots__ = ("_owners",)

    def __init__(self) -> None:
        # Replaced as a whole and never changed: other threads may be reading it.
        self._owners: tuple[Owner, ...] = ()

    def bind(self, monque: object, state: State) -> Owner:
        """Let the workers belong to *monque*, whose state this is, too."""
        owner = Owner(weakref.ref(monque), state)
        self._owners = (*self._alive(), owner)
        return owner

    def share(self, other: Home) -> None:
        """Let the workers belong to the same Monques as those of *other*."""
        self._owners = tuple(dict.fromkeys((*self._alive(), *other._alive())))

    def owner(self, name: str, advice: str, *, blocking: bool = False) -> Any:
        """The one Monque that the worker of this name belongs to; with *blocking*, the one `SyncMonque`.

        *advice* says how the worker comes to belong to one.

        Raises:
            ConfigurationError: There is none, there are several, or it is of the other kind.
        """
        owners = self._likely()
        monque = owners[0].monque() if owners else None
        if monque is None:
            raise ConfigurationError(
                f"the worker {name!r} belongs to no Monque yet; {advice}, or name the Monque: "
                "monque.enqueue(worker, ...)"
            )
        if len(owners) > 1:
            raise ConfigurationError(
                f"the worker {name!r} belongs to {len(owners)} Monques; name the one that is meant: "
                "monque.enqueue(worker, ...)"
            )
        if owners[0].blocks is not blocking:
            raise ConfigurationError(_wrong_kind(name, blocking=blocking))
        return monque

    def state(self) -> State:
        """The state of the one Monque that the workers belong to; in a hook, of the one that calls it.

        Raises:
            ConfigurationError: There is none, or there are several.
        """
        owners = self._likely()
        call = calling.get()
        if call is not None and any(owner.state is call.state for owner in owners):
            return call.state
        if not owners:
            raise ConfigurationError(
                "there is no state yet, because this belongs to no Monque; hand a Workers() to "
                "Monque(workers=...), and a JobRouter to setup_monque"
            )
        if len(owners) > 1:
            raise ConfigurationError(
                f"this belongs to {len(owners)} Monques, and each has a state; use monque.state of the one "
                "that is meant, or in a handler job.state"
            )
        return owners[0].state

    def _likely(self) -> list[Owner]:
        """Those that are not closed; if all are, those."""
        owners = self._alive()
        return [owner for owner in owners if not owner.is_closed] or owners

    def _alive(self) -> list[Owner]:
        return [owner for owner in self._owners if owner.monque() is not None]


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
