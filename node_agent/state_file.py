"""The file of what an agent must remember, a journal beside it, and a second place for it on another disk."""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slurm_interleave.node_agent import whole_file

log = logging.getLogger(__name__)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class StateFile:
    """One JSON object, replaced as a whole, and lines that were added since.

    While *directory* takes nothing the whole is in *spare*, on another disk; the next write tries the first
    place again.
    """

    def __init__(self, directory: Path, spare: Path | None) -> None:
        self.path, self.spare = directory / "agent.json", spare
        self.lines = 0  # that were added
        self._journal = directory / "agent.journal"
        self._series = 0  # of the file; lines that belong to another are older than it
        self._appending: int | None = None  # the open journal
        self._boot = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ""

    def write(self, stored: dict[str, Any]) -> OSError | None:
        """Write all of it, at once or not at all; return why it is in the second place, if it is there.

        Raises `OSError` if no place takes it.
        """
        stored = {"series": self._series + 1, "boot": self._boot, **stored}
        text = json.dumps(stored, default=vars)  # at once, since its pieces come from slow code
        refused = whole_file.write(self.path, self.spare, text)
        self._series, self.lines = self._series + 1, 0
        if refused is None:
            self._forget_lines()
        return refused

    def _forget_lines(self) -> None:
        if self._appending is not None:
            os.close(self._appending)
            self._appending = None
        self._journal.unlink(missing_ok=True)

    def append(self, line: dict[str, Any]) -> None:
        """Add a line. Raises `OSError`; then all is to be written."""
        if self._appending is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._appending = os.open(self._journal, flags, 0o600)
        text = json.dumps({"series": self._series, **line}).encode() + b"\n"
        if os.write(self._appending, text) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.lines += 1

    def read(self) -> dict[str, Any]:
        """Return what was written last in this boot; nothing if there is none. Raises `OSError`."""
        places = [self.path] if self.spare is None else [self.path, self.spare]
        found = [stored for place in places if place.exists() and (stored := self._stored(place))]
        newest = max(found, key=lambda stored: stored["series"], default={})
        self._series = newest.get("series", 0)
        return newest

    def _stored(self, path: Path) -> dict[str, Any]:
        try:
            stored = json.loads(path.read_text())
            if stored["boot"] != self._boot:
                log.info("state.void", extra={"reason": "the host was booted since"})
                return {}
            return {**stored, "series": int(stored["series"])}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            self.unreadable(path, error)
            return {}

    @property
    def has_added(self) -> bool:
        """Whether there are lines, of whatever file."""
        return self._journal.exists()

    def added(self) -> Iterator[dict[str, Any]]:
        """Yield the lines that were added to what was read. Raises `OSError`."""
        for line in self._journal.read_text(errors="replace").splitlines():
            entry = _entry(line)
            if entry.get("series") == self._series:
                yield entry

    def unreadable(self, path: Path, error: Exception) -> None:
        """Say that something of *path* cannot be used."""
        log.warning("state.unreadable", extra={"path": path, "reason": repr(error)})


def _entry(line: str) -> dict[str, Any]:
    """Return a line of the journal; nothing for one that a crash cut short."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}
