"""Who may see the page: each link has a secret, and shows what its owner may see."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from slurm_interleave.orchestrator.auth import Caller

_SECRET_BYTES = 32
# A user opens a page now and then: what is beyond this are forgotten links, the oldest of which ends.
_OF_ONE_MAX = 20
_ALL_MAX = 10_000


@dataclass(frozen=True)
class _Link:
    caller: Caller
    until: float


class PageLinks:
    """The links that are good now; only digests of their secrets are kept."""

    def __init__(self, lasts_s: float, clock: Callable[[], float]) -> None:
        self._lasts_s = lasts_s
        self._clock = clock
        self._links: dict[bytes, _Link] = {}

    def make(self, caller: Caller) -> tuple[str, float]:
        """Return a new secret for *caller*, and until when it is good, in seconds since the epoch."""
        now = self._clock()
        self._links = {digest: link for digest, link in self._links.items() if link.until > now}
        own = [digest for digest, link in self._links.items() if link.caller == caller]
        for digest in (*own[: max(0, len(own) + 1 - _OF_ONE_MAX)], *self._beyond()):
            self._links.pop(digest, None)
        secret, until = secrets.token_urlsafe(_SECRET_BYTES), now + self._lasts_s
        self._links[_digest(secret)] = _Link(caller, until)
        return secret, until

    def _beyond(self) -> list[bytes]:
        return list(self._links)[: max(0, len(self._links) + 1 - _ALL_MAX)]

    def caller(self, secret: str) -> Caller | None:
        """Return whose link has *secret*; None if nobody's has, or no longer."""
        link = self._links.get(_digest(secret))
        return link.caller if link is not None and link.until > self._clock() else None


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="surrogateescape")).digest()
