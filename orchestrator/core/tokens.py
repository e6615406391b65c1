"""By which token a caller acts for which member."""

from __future__ import annotations

from slurm_interleave.sql.rows import Key, Part


class Tokens:
    """The tokens of all parts, and those that processes know which were saved in an earlier run."""

    def __init__(self) -> None:
        self._members: dict[str, Key] = {}
        self._resumed: dict[str, str] = {}  # by attempt

    def get(self, token_sha256: str) -> Key | None:
        """Return the member that a token is of."""
        return self._members.get(token_sha256)

    def add(self, part: Part) -> None:
        """Take the token of *part*."""
        if part.token_sha256:
            self._members[part.token_sha256] = Key(part.job_id, part.group)

    def resumed(self, attempt: str, key: Key, token_sha256: str) -> None:
        """Take the token of processes that *attempt* has brought back. It is not remembered: its agent is."""
        if token_sha256:
            self._members[token_sha256], self._resumed[attempt] = key, token_sha256

    def drop(self, part: Part) -> None:
        """Forget what *part* was known by."""
        self._members.pop(part.token_sha256, None)
        self._members.pop(self._resumed.pop(part.attempt, ""), None)
