"""Log lines of the daemons: a fixed event name and fields, as key=value, fit for journald."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from functools import lru_cache

log = logging.getLogger(__name__)
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


class WholeLines(logging.Handler):
    """Writes each record to a descriptor as whole lines, or not at all; says how many were lost."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._lost, self._torn = 0, False

    def emit(self, record: logging.LogRecord) -> None:
        """Write *record*; what cannot be written is counted, and hurts nobody."""
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001 - a record that cannot be put into words
            self.handleError(record)
            return
        self._tell_lost()
        if not self._write(f"{line}\n"):
            self._lost += 1

    def _tell_lost(self) -> None:
        lost, self._lost = self._lost, 0
        if lost:
            log.warning("log.lost", extra={"count": lost})  # comes here; what is not written counts as one
        if self._lost:
            self._lost = lost

    def _write(self, text: str) -> bool:
        whole = ("\n" * self._torn + text).encode(errors="backslashreplace")
        try:
            written = os.write(self._descriptor, whole)
        except OSError:
            return False
        self._torn = written < len(whole)
        return not self._torn


def set_up(level: str = "info") -> None:
    """Send all logging of this process to stderr in that form."""
    handler = WholeLines(2)
    handler.setFormatter(KeyValue())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Its plugins introduce themselves one by one.
    logging.getLogger("alembic").setLevel(logging.WARNING)
