"""`on_failure` on the way of a run: it is noted with the claim, and the follow-up is stored after the end."""

from __future__ import annotations

from collections.abc import Callable

from pymongo.errors import PyMongoError

from monque._engine.claimed import Run, Settlement
from monque._engine.context import Context
from monque._engine.decide import Outcome
from monque._engine.insist import keep_trying
from monque._engine.runs import Runs
from monque._store import follow_ups
from monque._store.document import ON_FAILURE, Claim, named_as, with_id
from monque._store.follow_ups import note, store_due
from monque._store.settle import LOST, Lost
from monque._store.store import Store
from monque._workers.workers import Workers


async def note_on_failure(store: Store, workers: Workers, claims: list[Claim]) -> list[Claim]:
    """Note the setting of its worker in each claimed job that has none of its own: the gate.

    So whoever gives the job up knows what follows, also an instance without the worker.
    """
    named = [
        (claim, str(name))
        for claim in claims
        if ON_FAILURE not in claim.document
        if (name := workers.settings_of(claim.name).get("on_failure")) is not None
    ]
    if not named:
        return claims
    noted = {claim.key: claim for claim in await note(store, named)}
    return [noted.get(claim.key, claim) for claim in claims]


async def store_earlier(run: Run, context: Context, outcome: Outcome) -> Outcome | tuple[Settlement, Lost]:
    """Store the follow-up of an earlier run of this job: a finisher."""
    done = await keep_trying(run, context, lambda: _store_of(run.claim, context))
    if isinstance(done, Lost):
        return Settlement.decided(run, outcome, context.store, context.bus), LOST
    return outcome


async def _store_of(claim: Claim, context: Context) -> set[str]:
    return await store_due(context.store, {**with_id(claim.id), **named_as(claim.document)})


async def follow(settlement: Settlement, runs: Runs) -> None:
    """Store the follow-up of a run that has failed for good. If that fails, the sweep does it."""
    try:
        await _store_of(settlement.claim, runs.context)
    except PyMongoError as error:
        runs.context.report_failure("storing a follow-up", error)
        return
    if settlement.follow_up is not None:
        runs.owner.on_put_back(settlement.follow_up)


async def sweep(store: Store, wake: Callable[[str], None]) -> None:
    """Store the follow-ups that processes have left behind which died; *wake* gets their names."""
    for name in await follow_ups.sweep(store):
        wake(name)
