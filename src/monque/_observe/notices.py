"""The log lines with which an instance starts and stops, as plain text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from monque._values.views import Pause

# An instance may have a thousand names; a log line should not. With half as many, an ordinary service would
# not see all of its names; with twice as many, the line would be hard to read.
_MOST_NAMES = 20


def starts(
    concurrency: Mapping[str, int], *, place: str, instance_concurrency: int | None, poll: float | None
) -> str:
    """Say what an instance works on, where, and how it finds jobs: every *poll* seconds, or by a stream."""
    names = [f"{name} ({count} at once)" for name, count in concurrency.items()]
    what = _listed(names) or "no jobs yet (no worker is registered)"
    most = "" if instance_concurrency is None else f", at most {instance_concurrency} at once in all,"
    how = "woken by a change stream" if poll is None else f"looking for new jobs every {poll:g} s"
    return f"works on {what}{most} in {place}, {how}"


def stops(running: Iterable[str], *, timeout: float, hears_signals: bool, by_job: bool) -> str:
    """Say what a stopping instance does, given the names of the jobs that it waits for."""
    counts = Counter(running)
    if not counts:
        return (
            "stops, as a job asked for it; no other job is running" if by_job else "stops; no job is running"
        )
    names = _listed([f"{count} {name}" for name, count in sorted(counts.items())])
    jobs = f"{counts.total()} running job(s) ({names})"
    if timeout <= 0:
        return f"stops and gives back {jobs} at once"
    hint = "; a second signal gives them back at once" if hears_signals else ""
    return f"stops and waits at most {timeout:g} s for {jobs}{hint}"


def unfinished(*, put_back: list[str], still_running: list[str], not_stored: list[str]) -> str:
    """Say what became of the jobs that were not finished in time, given as "name id"."""
    fates = {
        "put back": put_back,
        "still running, because they could not be cancelled": still_running,
        "ended, but the database has not confirmed that yet": not_stored,
    }
    said = [f"{fate}: {_listed(jobs)}" for fate, jobs in fates.items() if jobs]
    return "; ".join(said) or "all of them have ended since"


def stopped(seconds: float, still_running: int, not_stored: int) -> str:
    """The last line of an instance."""
    running = f"; {still_running} job(s) still run here" if still_running else ""
    ended = f"; the end of {not_stored} job(s) is not stored yet" if not_stored else ""
    return f"stopped after {seconds:.1f} s{running}{ended}"


def paused(pause: Pause) -> str:
    """Say that a pause has begun to count here."""
    what = "any name" if pause.name is None else pause.name
    until = "" if pause.until is None else f" until {pause.until:%Y-%m-%d %H:%M:%S} UTC"
    why = "" if pause.reason is None else f": {pause.reason}"
    return f"starts no job of {what}{until}, as it is paused{why}"


def resumed(name: str | None) -> str:
    """Say that a pause does not count here any more."""
    what = "all names but those that are paused by themselves" if name is None else name
    return f"starts jobs of {what} again"


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
