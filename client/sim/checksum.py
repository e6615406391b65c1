"""Checksums that cost little beside a copy: taken block by block, while the cache has what was copied.

They are XXH3 (64 bits), by the package xxhash, which reads several times as fast as memory is copied. Where
that package is missing, CRC-32 by zlib, at a fifth of a copy's speed. A checksum names its kind, so that
it is compared with one of the same.
"""

from __future__ import annotations

import functools
import importlib
import zlib
from typing import Any

from slurm_interleave.client.sim.errors import SimError

CHUNK = 8 << 20
_BLOCK = 128 << 10  # it and its copy stay in the second-level cache of a core


class Checksum:
    """The checksum of all that was taken so far; as text, `kind:hexadecimal`."""

    def __init__(self, like: str = "") -> None:
        """Begin with nothing; *like* is a checksum to compare with. Raises `SimError` if that cannot be."""
        self._kind = like.partition(":")[0] or ("xxh3" if _xxhash() else "crc32")
        if self._kind == "xxh3" and not _xxhash():
            raise SimError(
                "what was saved has a checksum of kind xxh3; install the package xxhash to read it"
            )
        self._sum = _xxhash().xxh3_64() if self._kind == "xxh3" else _Crc32()

    def take(self, source: memoryview, to: memoryview | None = None) -> None:
        """Add *source*, and copy it on the way to where something is given."""
        for start in range(0, len(source), _BLOCK):
            block = source[start : start + _BLOCK]
            if to is not None:
                to[start : start + _BLOCK] = block
            self._sum.update(block)

    def __str__(self) -> str:
        return f"{self._kind}:{self._sum.intdigest():x}"


class _Crc32:
    """What zlib has, in the form of xxhash."""

    def __init__(self) -> None:
        self._value = 0

    def update(self, data: memoryview) -> None:
        self._value = zlib.crc32(data, self._value)

    def intdigest(self) -> int:
        return self._value


def of(data: memoryview, like: str = "") -> str:
    """Return the checksum of *data*; see `Checksum`."""
    seen = Checksum(like)
    seen.take(data)
    return str(seen)


@functools.cache
def _xxhash() -> Any:
    try:
        return importlib.import_module("xxhash")
    except ImportError:
        return None
