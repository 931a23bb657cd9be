"""`pymongo.timeout` around a call is about that call, not about what goes on after it, or for others.

The driver keeps the deadline in context variables, which every task inherits that is started inside.
"""

from __future__ import annotations

from contextvars import Context, copy_context

try:
    from pymongo import _csot
except ImportError:  # not public: a driver that does without it must not be one that we cannot work with
    _csot = None  # type: ignore[assignment]


def under_deadline() -> bool:
    """Whether the caller has set one."""
    return _csot is not None and _csot.get_timeout() is not None


def without_deadline() -> Context:
    """The caller's context variables, without it."""
    variables = copy_context()
    if _csot is not None:
        variables.run(_csot.reset_all)
    return variables
