"""As `calls.py`, for the helpers of `monque.testing`."""

from __future__ import annotations

from typing import Any, assert_type

from monque import Job, Monque, SyncMonque
from monque.testing import assert_enqueued, assert_not_enqueued


async def right_calls(monque: Monque, blocking: SyncMonque) -> None:
    assert_type(await assert_enqueued(monque, "send", {"to": "ada"}), Job[Any])
    assert_type(assert_enqueued(blocking, "send", {"to": "ada"}), Job[Any])
    await assert_not_enqueued(monque, "send")
    assert_not_enqueued(blocking, "send")


async def wrong_calls(monque: Monque, blocking: SyncMonque) -> None:
    assert_enqueued(monque, "send")  # type: ignore[unused-coroutine]  # it is not awaited
    assert_not_enqueued(monque, "send")  # type: ignore[unused-coroutine]  # it is not awaited
    await assert_enqueued(blocking, "send")  # type: ignore[misc]  # it is done when it returns
    assert_enqueued("send")  # type: ignore[call-overload]  # where?
