from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monque._time.backoff import backoff

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)

durations = st.timedeltas(min_value=timedelta(0))


@pytest.mark.parametrize(("fail_count", "seconds"), [(1, 2), (2, 4), (3, 8), (9, 512), (16, 65536)])
def test_the_delay_doubles_with_each_failure(fail_count, seconds):
    assert backoff(fail_count, base=SECOND, limit=DAY) == timedelta(seconds=seconds)


def test_the_delay_is_exact_to_the_microsecond():
    base = timedelta(milliseconds=1, microseconds=1)

    assert backoff(20, base=base, limit=timedelta.max) == base * 2**20


def test_the_limit_is_reached_and_kept():
    assert backoff(16, base=SECOND, limit=DAY) < DAY
    assert backoff(17, base=SECOND, limit=DAY) == DAY


@pytest.mark.parametrize("fail_count", [63, 64, 100, 1_000, 10_000, 10**9])
def test_no_number_of_failures_overflows(fail_count):
    assert backoff(fail_count, base=SECOND, limit=DAY) == DAY
    assert backoff(fail_count, base=timedelta.max, limit=timedelta.max, jitter=0.5) == timedelta.max


@pytest.mark.parametrize(("chance", "seconds"), [(0.0, 9.0), (0.5, 10.0), (0.75, 10.5), (1.0, 11.0)])
def test_jitter_spreads_the_delay_evenly_to_both_sides(chance, seconds):
    delay = backoff(1, base=5 * SECOND, limit=DAY, jitter=0.1, rng=lambda: chance)

    assert delay == timedelta(seconds=seconds)


def test_jitter_comes_before_the_limit():
    delays = {backoff(n, base=SECOND, limit=60 * SECOND, jitter=0.5, rng=lambda: 0.0) for n in (6, 10, 20)}

    assert delays == {32 * SECOND, 60 * SECOND}


def test_jitter_beyond_one_is_never_negative():
    assert backoff(3, base=SECOND, limit=DAY, jitter=2.0, rng=lambda: 0.0) == timedelta(0)


@given(
    fail_count=st.integers(1, 20_000),
    base=durations,
    limit=durations,
    jitter=st.floats(0, 10),
    chance=st.floats(0, 1),
)
def test_the_delay_is_between_zero_and_the_limit(fail_count, base, limit, jitter, chance):
    delay = backoff(fail_count, base=base, limit=limit, jitter=jitter, rng=lambda: chance)

    assert timedelta(0) <= delay <= limit


@given(fail_count=st.integers(1, 200), base=durations, limit=durations)
def test_without_jitter_it_is_the_formula(fail_count, base, limit):
    microsecond = timedelta(microseconds=1)

    delay = backoff(fail_count, base=base, limit=limit)

    assert delay // microsecond == min((base // microsecond) * 2**fail_count, limit // microsecond)
