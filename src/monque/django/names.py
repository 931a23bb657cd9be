"""What Django calls a task, a queue and a priority, and what Monque calls them."""

from __future__ import annotations

import math
import re

_LOWEST, _HIGHEST = 1, 9
_MOST_URGENT = 100
_LONGEST_NAME = 255


def job_name(queue: str, path: str) -> str:
    """The job name of a task on a queue: `default:shop.tasks.send_email`."""
    return f"{queue}:{path}"


def split_name(name: str) -> tuple[str, str] | None:
    """The queue and the path of the task function; None for a job that is no task."""
    queue, colon, path = name.partition(":")
    return (queue, path) if colon and queue and path else None


def queue_problem(queue: object) -> str | None:
    """Why this cannot be the name of a queue; None if it can."""
    if not isinstance(queue, str) or not queue or re.search(r"[\s:\x00-\x1f\x7f-\x9f\ufeff]", queue):
        return f"a queue must have a name without whitespace and ':', such as 'emails', got {queue!r}"
    return None


def name_problem(queue: str, path: str) -> str | None:
    """Why a task cannot be on this queue; None if it can."""
    if problem := queue_problem(queue):
        return problem
    if len(name := job_name(queue, path)) > _LONGEST_NAME:
        return f"queue and path of a task must have at most {_LONGEST_NAME - 1} characters, got {name!r}"
    return None


def monque_priority(priority: int) -> int:
    """Django's priority as ours: -100 to 0 is normal (0), 1 to 100 becomes 1 to 9, in the same order.

    Nothing comes after normal jobs, so below normal counts as normal.
    """
    if priority <= 0:
        return 0
    return max(_LOWEST, math.ceil(priority * _HIGHEST / _MOST_URGENT))
