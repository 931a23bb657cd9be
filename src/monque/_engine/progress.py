"""Progress and log lines of running jobs: remembered at once, written together, all before the settlement.

Handlers may report as often as they like, in any thread. The newest progress and the newest lines wait here
until the next write, at most one a second for all jobs of the instance. Such a write is a sign of life, too.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from pymongo.errors import OperationFailure, PyMongoError

from monque._engine.claimed import Run
from monque._engine.context import Context
from monque._engine.decide import Outcome
from monque._store.batching import Batching
from monque._time.clock import elapsed
from monque._values.history import LogLine, Progress, Report, check_line, check_progress

# How many seconds lie between two writes. With more, a progress bar begins to stutter.
_INTERVAL = 1.0

# How many seconds a write waits for more reports. Jobs that end earlier need no write but the last one.
_COLLECTING = 0.1

# The reports of one write. As many runs can be unsettled at once; they share updates of a hundred.
_AT_ONCE = 5_000


class Reporting:
    """Collects what handlers report, and writes it while the run still owns its job.

    Nothing is written between `complete_in` and the end of its transaction, which holds the document: the
    transaction itself writes what there is, or the run does before it is settled otherwise.
    """

    def __init__(
        self, context: Context, on_lost: Callable[[Run], None], on_bug: Callable[[BaseException], None]
    ) -> None:
        self._context = context
        self._on_lost = on_lost
        self._on_bug = on_bug
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._reports: dict[Run, Report] = {}
        """Of each run that has ever reported anything, what is not written yet; empty if nobody reports."""
        self._is_awake = False
        self._wake = asyncio.Event()
        # One write at a time, so that the last report of a run comes after those before it.
        self._batching: Batching[Run, bool] = Batching(self._send, many=_AT_ONCE, at_once=1)

    def unwritten(self, run: Run) -> Report | None:
        """Return what a run has reported and is not written yet; None if there is nothing."""
        report = self._reports.get(run)
        return None if report is None or report.is_empty else report

    def forget(self, run: Run) -> None:
        """Drop what a run has reported: it is over."""
        self._reports.pop(run, None)

    def add_progress(self, run: Run, done: object, total: object, message: object) -> None:
        """Remember how far a run is."""
        self._add(run, check_progress(done, total, message, self._context.store.clock.now()))

    def add_line(self, run: Run, text: object, level: object) -> None:
        """Remember a line for the job's log."""
        self._add(run, check_line(text, level, self._context.store.clock.now()))

    def _add(self, run: Run, told: Progress | LogLine) -> None:
        if not run.is_running:
            return  # a thread that the handler has left behind, or its child process, reports too late
        with self._lock:
            if (report := self._reports.get(run)) is None:
                report = self._reports[run] = Report()
                run.finish_with(partial(self._write_last, run))
            if isinstance(told, Progress):
                report.progress = told
            else:
                report.lines.append(told)
            is_awake, self._is_awake = self._is_awake, True
        if not is_awake:
            with suppress(RuntimeError):  # the event loop is gone, and nothing can be written any more
                self._loop.call_soon_threadsafe(self._wake.set)

    async def loop(self) -> None:
        """Write what was reported: soon if nothing was written lately, else a second after the last write."""
        while True:
            await self._wake.wait()
            await asyncio.sleep(_COLLECTING)
            with self._lock:
                self._wake.clear()
                self._is_awake = False  # whoever reports from now on wakes us again
                runs = [run for run in self._reports if _may_write(run)]
            for run in runs:
                self._batching.put(run, self._written)
            await asyncio.sleep(_INTERVAL - _COLLECTING)

    async def _write_last(self, run: Run, outcome: Outcome) -> Outcome:
        """Write what is left of a run whose handler has ended. If that fails, the job is settled without."""
        with suppress(PyMongoError):
            await self._batching.add(run)
        self.forget(run)
        return outcome

    def _written(self, run: Run, is_owned: bool | BaseException) -> None:
        if isinstance(is_owned, Exception) and not isinstance(is_owned, PyMongoError):
            self._on_bug(is_owned)
        elif is_owned is False and run.completion is None:  # else a transaction may have completed the job
            self._on_lost(run)

    async def _send(self, runs: list[Run]) -> Sequence[bool | Exception]:
        """Write the reports; whether each run still owns its job."""
        reports = {run: report for run in runs if (report := self._take(run)) is not None}
        if not reports:
            return [True] * len(runs)
        sent, claims = elapsed(), [run.claim for run in reports]
        try:
            lost = await self._context.store.settler.report(claims, list(reports.values()))
        except PyMongoError as error:
            self._context.report_failure("writing progress and logs", error)
            # What the server refused once, it would refuse again.
            if not isinstance(error, OperationFailure):
                self._put_back(reports)
            return [error] * len(runs)
        gone = {claim.key for claim in lost}
        for run in reports:
            run.last_write = run.last_write if run.claim.key in gone else sent
        return [run.claim.key not in gone for run in runs]

    def _take(self, run: Run) -> Report | None:
        """Take out what is to be written of a run; None if there is nothing, or its transaction is open."""
        with self._lock:
            if (report := self.unwritten(run)) is None or not _may_write(run):
                return None
            self._reports[run] = Report()
            return report

    def _put_back(self, reports: dict[Run, Report]) -> None:
        with self._lock:
            for run, report in reports.items():
                if run in self._reports:
                    self._reports[run].put_back(report)
            self._is_awake = True
        self._wake.set()


def _may_write(run: Run) -> bool:
    return (run.completion is None and not run.in_transaction) or not run.is_running
