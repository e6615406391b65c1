"""One daemon of a kind on a host: a lock that ends with its process."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from slurm_interleave.client.core.errors import ConfigError


@contextlib.contextmanager
def only_one(path: Path, what: str, *, folder_mode: int = 0o700) -> Iterator[None]:
    """Hold the lock file *path* as the one *what*. Raises `ConfigError` that names who holds it.

    *folder_mode* is that of its folder, whatever the umask says, if there is none yet.
    """
    try:
        if not path.parent.exists():
            path.parent.mkdir(parents=True)
            path.parent.chmod(folder_mode)
        descriptor = open_lock(path)
    except OSError as error:
        raise ConfigError(f"lock file {path} cannot be made: {error}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise ConfigError(
            f"another {what} runs here, pid {holder}, and holds {path}; stop it first"
        ) from None
    try:
        # The pid is for people; a full disk takes nothing from the lock.
        with contextlib.suppress(OSError):
            os.truncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(descriptor)


def open_lock(path: Path) -> int:
    """Return a descriptor of the lock file *path*, made if need be. Raises `OSError`."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno != errno.EROFS or not path.exists():
            raise
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # to lock it takes no write
