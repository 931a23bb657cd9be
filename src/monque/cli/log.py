"""Log lines of a worker: text for people, JSON for machines; on standard error."""

from __future__ import annotations

import json
import logging
import sys
from copy import copy
from datetime import UTC, datetime
from typing import Any, TextIO

from monque import JobLogFilter

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")

# Attributes of every record; any other was given with `extra=`, and belongs into the line.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

TOLD = "traceback_told"
"""Set on a record whose traceback stands below an earlier line of the console."""

# People know the instance by the process, which stands in every line.
_LEFT_OUT = frozenset({"instance_id"})


def set_up_logging(level: str, style: str) -> None:
    """Write everything that is logged in this process to standard error."""
    handler = _Stderr()
    handler.addFilter(JobLogFilter())
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # The driver tells of every command at this level: nobody who debugs jobs wants that.
    logging.getLogger("pymongo").setLevel(max(logging.INFO, logging.getLogger().level))


class TextFormatter(logging.Formatter):
    """`12:00:00 INFO monque: message key=value`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s[%(process)d]: %(message)s", "%Y-%m-%d %H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name in logging
        extra = {name: value for name, value in extra_fields(record).items() if name not in _LEFT_OUT}
        fields = "".join(f" {name}={value}" for name, value in extra.items())
        return super().formatMessage(record) + fields


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, logger, message, pid, and whatever fields the record carries."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "pid": record.process,
            **extra_fields(record),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields that were logged with `extra=`."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to what standard error is at that moment: above a progress bar, if there is one."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, _stream: TextIO) -> None:
        raise AttributeError("it is always standard error")

    def format(self, record: logging.LogRecord) -> str:
        """As the formatter has it, without a traceback that was told before."""
        if hasattr(record, TOLD):
            record = copy(record)  # other handlers get the traceback
            delattr(record, TOLD)
            record.exc_info = record.exc_text = None
        return super().format(record)
