"""What the audit trail calls actions, in words that people use."""

from __future__ import annotations

_WORDS = {
    "run-now": "run now",
    "canary": "retry as a canary",
    "cancelBulk": "cancel many",
    "retryBulk": "retry many",
    "deleteBulk": "delete many",
    "stopBulk": "stop many",
    "prioritizeBulk": "prioritize many",
    "rescheduleBulk": "reschedule many",
    "run-nowBulk": "run many now",
    "schedule": "store a schedule",
    "schedule-edit": "edit a schedule",
    "schedule-pause": "pause a schedule",
    "schedule-resume": "resume a schedule",
    "schedule-run-now": "run a schedule now",
    "unschedule": "delete a schedule",
    "createIndexes": "create indexes",
}
_NAMES = {words: action for action, words in _WORDS.items()}


def words_for(action: str) -> str:
    """The words for an action; one that is not known here stands for itself."""
    return _WORDS.get(action, action)


def action_named(text: str) -> str:
    """The action that these words stand for, as somebody types them who has read them on a page."""
    return _NAMES.get(text.strip().lower(), text)
