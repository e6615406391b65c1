"""Small files that are written at once or not at all, in a second place where the first takes nothing."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write(path: Path, spare: Path | None, text: str) -> OSError | None:
    """Write *text* to *path*, and remove *spare*; or to *spare*, on another disk: then return why.

    Raises `OSError` if no place takes it.
    """
    try:
        _replace(path, text)
    except OSError as error:
        if spare is None:
            raise
        _replace(spare, text)
        return error
    if spare is not None:
        with contextlib.suppress(OSError):
            spare.unlink()
    return None


def _replace(path: Path, text: str) -> None:
    if not path.parent.exists():
        # Sockets of jobs lie in the agent's folder too, whatever the umask says.
        path.parent.mkdir(parents=True)
        path.parent.chmod(0o755)
    fresh = path.with_suffix(".new")
    # The jobs' tokens are in it.
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
    fresh.replace(path)
