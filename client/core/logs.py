"""Log lines of the daemons: a fixed event name and fields, as key=value, fit for journald."""

from __future__ import annotations

import json
import logging
import sys
import time

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class KeyValue(logging.Formatter):
    """`time level event=NAME key=value ...`; values with spaces are quoted as JSON strings."""

    def format(self, record: logging.LogRecord) -> str:
        """Return *record* as one line; a traceback, if any, follows it."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(record.created))
        fields = {"event": record.getMessage()}
        fields |= {key: value for key, value in vars(record).items() if key not in _OWN}
        line = f"{stamp}.{int(record.msecs):03d} {record.levelname.lower()} " + " ".join(
            f"{key}={_word(value)}" for key, value in fields.items()
        )
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _word(value: object) -> str:
    text = str(value)
    return text if text and not any(c.isspace() or c in '"=' for c in text) else json.dumps(text)


def set_up(level: str = "info") -> None:
    """Send all logging of this process to stderr in that form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(KeyValue())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Its plugins introduce themselves one by one.
    logging.getLogger("alembic").setLevel(logging.WARNING)
