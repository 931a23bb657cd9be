"""The lines with which an instance starts and stops, as values."""

from __future__ import annotations

import pytest

from monque._observe.logs import starts, stopped, stops, unfinished


def _starts(
    concurrency: dict[str, int], *, instance_concurrency: int | None = None, poll: float | None = None
) -> str:
    return starts(concurrency, place="shop.jobs", instance_concurrency=instance_concurrency, poll=poll)


def _stops(*running: str, timeout: float = 30, hears_signals: bool = False, by_job: bool = False) -> str:
    return stops(running, timeout=timeout, hears_signals=hears_signals, by_job=by_job)


def _unfinished(**fates: list[str]) -> str:
    none: dict[str, list[str]] = {"put_back": [], "still_running": [], "not_stored": []}
    return unfinished(**(none | fates))


def test_the_start_names_each_worker_with_its_concurrency() -> None:
    assert _starts({"mail": 5, "export": 1}) == (
        "works on mail (5 at once), export (1 at once) in shop.jobs, woken by a change stream"
    )


def test_the_start_says_how_often_the_database_is_polled() -> None:
    assert _starts({"mail": 5}, poll=0.2) == (
        "works on mail (5 at once) in shop.jobs, looking for new jobs every 0.2 s"
    )


def test_the_start_says_how_many_jobs_run_in_all() -> None:
    assert _starts({"mail": 5}, instance_concurrency=3) == (
        "works on mail (5 at once), at most 3 at once in all, in shop.jobs, woken by a change stream"
    )


def test_the_start_without_workers_says_so() -> None:
    assert _starts({}).startswith("works on no jobs yet (no worker is registered) in shop.jobs")


def test_a_thousand_names_are_cut_short() -> None:
    line = _starts({f"n{number}": 1 for number in range(1000)})

    assert "n19 (1 at once) and 980 more in shop.jobs" in line
    assert "n20" not in line


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (_stops(), "stops; no job is running"),
        (_stops(by_job=True), "stops, as a job asked for it; no other job is running"),
        (
            _stops("mail", "export", "mail"),
            "stops and waits at most 30 s for 3 running job(s) (1 export, 2 mail)",
        ),
        (
            _stops("mail", hears_signals=True),
            "stops and waits at most 30 s for 1 running job(s) (1 mail); "
            "a second signal gives them back at once",
        ),
        (_stops("mail", timeout=0), "stops and gives back 1 running job(s) (1 mail) at once"),
    ],
)
def test_the_stop_says_what_it_waits_for(line: str, says: str) -> None:
    assert line == says


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (_unfinished(), "all of them have ended since"),
        (_unfinished(put_back=["mail 1"]), "put back: mail 1"),
        (
            _unfinished(put_back=["mail 1"], still_running=["export 2"]),
            "put back: mail 1; still running, because they could not be cancelled: export 2",
        ),
        (
            _unfinished(not_stored=["mail 1", "mail 2"]),
            "ended, but the database has not confirmed that yet: mail 1, mail 2",
        ),
        (stopped(1.26, 0, 0), "stopped after 1.3 s"),
        (stopped(1, 2, 0), "stopped after 1.0 s; 2 job(s) still run here"),
        (stopped(1, 0, 3), "stopped after 1.0 s; the end of 3 job(s) is not stored yet"),
    ],
)
def test_the_end_says_what_became_of_the_jobs(line: str, says: str) -> None:
    assert line == says
