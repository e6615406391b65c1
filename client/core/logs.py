"""Log lines of the daemons: a fixed event name and fields, as key=value, fit for journald."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from functools import lru_cache

_SPECIAL = re.compile(r'[\s"=]')
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class KeyValue(logging.Formatter):
    """`time level event=NAME key=value ...`; values with spaces are quoted as JSON strings."""

    def format(self, record: logging.LogRecord) -> str:
        """Return *record* as one line; a traceback, if any, follows it."""
        fields = vars(record)
        words = [f"{key}={_word(fields[key])}" for key in fields if key not in _OWN]
        line = " ".join(
            [
                f"{_stamp(int(record.created))}.{int(record.msecs):03d}",
                record.levelname.lower(),
                f"event={_word(record.getMessage())}",
                *words,
            ]
        )
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _word(value: object) -> str:
    text = str(value)
    # What jobs say is in it too, as escape sequences of terminals may be.
    return json.dumps(text) if not text.isprintable() or not text or _SPECIAL.search(text) else text


@lru_cache(1)
def _stamp(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(seconds))


def set_up(level: str = "info") -> None:
    """Send all logging of this process to stderr in that form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(KeyValue())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Its plugins introduce themselves one by one.
    logging.getLogger("alembic").setLevel(logging.WARNING)
