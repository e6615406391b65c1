"""What goes wrong with one job while the others carry on; what lasts is logged once."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterator

from slurm_interleave.client.core.errors import BadName, InterleaveError, SlurmFailed

log = logging.getLogger(__name__)


class Reports:
    """Remembers what was logged last of each job, or of what else has a key."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}

    @contextlib.contextmanager
    def of(self, job_id: str) -> Iterator[None]:
        """Log what fails with this one job; the next round tries again."""
        try:
            yield
        except BadName as error:
            self.failed("placement.unreadable", job_id, error)
        except SlurmFailed as error:
            self.failed("placement.failed", job_id, error)

    def failed(self, event: str, key: str, error: InterleaveError) -> None:
        """Log *error* unless it was the last one of *key*."""
        text = str(error)
        if self._last.get(key) != text:
            self._last[key] = text
            log.warning(event, extra={"job": key, "error": text})

    def forget_all_but(self, keys: Collection[str]) -> None:
        """Forget what was logged of those that are not in *keys*."""
        self._last = {key: text for key, text in self._last.items() if key in keys}

    def forget(self, key: str) -> None:
        """Log the next failure of *key*, whichever it is."""
        self._last.pop(key, None)
