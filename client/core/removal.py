"""The end of folders in which a user could make what he likes."""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(folder: Path) -> None:
    """Remove *folder* and all in it; what cannot be removed stays.

    Not `shutil.rmtree`, which goes as deep as its owner made it, and fails with another error than `OSError`
    where that is too deep: each folder is moved up before it is emptied.
    """
    with contextlib.suppress(OSError):
        top = os.open(folder, _FOLDER)
        try:
            os.fchmod(top, 0o700)
            os.fchown(top, os.geteuid(), -1)
            left = _unlinked(top, top)
            while left:
                _empty(left.pop(), top, left)
        finally:
            os.close(top)
        folder.rmdir()


def _empty(name: str, top: int, left: list[str]) -> None:
    with contextlib.suppress(OSError):
        inner = os.open(name, _FOLDER, dir_fd=top)
        try:
            left += _unlinked(inner, top)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=top)


def _unlinked(folder: int, top: int) -> list[str]:
    """Remove the files of *folder* and move its folders to *top*; return their names there."""
    moved = []
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):
            try:
                os.unlink(name, dir_fd=folder)
            except IsADirectoryError:
                there = uuid.uuid4().hex
                os.rename(name, there, src_dir_fd=folder, dst_dir_fd=top)
                moved.append(there)
    return moved
