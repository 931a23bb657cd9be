"""A group of failures as Markdown for a bug report. Payloads are left out: a report is read by many."""

from __future__ import annotations

import re

from monque.management.ops import OpsGroupAnswer, OpsJobAnswer


def report(group: OpsGroupAnswer, sample: OpsJobAnswer) -> str:
    """The group, and the newest traceback of *sample*, a job of it."""
    new = "" if group.new_since is None else f", new since release {_line(group.new_since)}"
    jobs = f"{group.count:,} job{'' if group.count == 1 else 's'}"
    lines = [
        f"# {_line(group.sentence)}",
        "",
        f"- {jobs} ({', '.join(map(_line, group.names))})",
        f"- first seen {group.first_seen}, last seen {group.last_seen}{new}",
        f"- fingerprint {group.fingerprint}, for example {', '.join(group.sample_ids)}",
    ]
    if group.differing_keys:
        lines.append(f"- payloads differ in {', '.join(map(_line, group.differing_keys))}")
    if (text := _newest(sample)) is not None:
        # A fence longer than any in the text, which is data from others.
        fence = "`" * max(3, *(len(each) + 1 for each in re.findall("`+", text)), 0)
        lines += ["", fence, text.rstrip(), fence]
    return "\n".join(lines) + "\n"


def _newest(sample: OpsJobAnswer) -> str | None:
    for attempt in reversed(sample.attempts or []):
        if attempt.error is not None and attempt.error.traceback is not None:
            return attempt.error.traceback
    return sample.failure_reason


def _line(text: str) -> str:
    """A text on one line, with marks for what would be invisible or break it."""
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in text)
