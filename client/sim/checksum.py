"""Checksums that cost little beside a copy: taken block by block, while the cache has what was copied.

They are made of the XXH3 (64 bits) of each part, so that several threads can take them; by the package
xxhash, which reads from the cache at several times the speed of a copy. Where that package is missing,
CRC-32 by zlib, at a fifth of a copy's speed. A checksum names its kind, so that it is compared with one of
the same.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import zlib
from typing import Any

from slurm_interleave.client.sim.errors import SimError

PART = 4 << 20
_BLOCK = 1 << 20  # it stays in the caches; with smaller ones threads wait for Python's lock, again and again
_FAST, _PLAIN = "xxh3-4m", "crc32-4m"


class Checksum:
    """The checksum of *size* bytes, whose parts come in any order; as text, `kind:hexadecimal`."""

    def __init__(self, size: int, like: str = "") -> None:
        """Begin with nothing; *like* is a checksum to compare with. Raises `SimError` if that cannot be."""
        self._kind = like.partition(":")[0] or (_FAST if _xxhash() else _PLAIN)
        if self._kind == _FAST and not _xxhash():
            raise SimError(
                f"what was saved has a checksum of kind {_FAST}; install the package xxhash to read it"
            )
        if self._kind not in (_FAST, _PLAIN):
            raise SimError(
                f"what was saved has a checksum of kind {self._kind}, which this release cannot make; "
                "restore it with the release that saved it"
            )
        self._size = size
        self._sums = [b""] * -(-size // PART)

    @property
    def parts(self) -> range:
        """The numbers of the parts that are to be taken."""
        return range(len(self._sums))

    def take(self, part: int, source: memoryview, to: memoryview | None = None) -> int:
        """Add a part of *source*, copy it on the way to where something is given, and return its size.

        Other threads run meanwhile. What is copied must be writable memory too: its address is asked for.
        """
        start, end = part * PART, min(part * PART + PART, self._size)
        seen = self._new()
        here, there = (_address(source), _address(to)) if to is not None else (0, 0)
        for at in range(start, end, _BLOCK):
            block = source[at : min(at + _BLOCK, end)]
            if to is not None:
                ctypes.memmove(there + at, here + at, len(block))
            seen.update(block)
        self._sums[part] = seen.intdigest().to_bytes(8, "little")
        return end - start

    def __str__(self) -> str:
        whole = self._new()
        whole.update(b"".join(self._sums))
        return f"{self._kind}:{whole.intdigest():x}"

    def _new(self) -> Any:
        return _xxhash().xxh3_64() if self._kind == _FAST else _Crc32()


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
    seen = Checksum(len(data), like)
    for part in seen.parts:
        seen.take(part, data)
    return str(seen)


def _address(view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


@functools.cache
def _xxhash() -> Any:
    try:
        return importlib.import_module("xxhash")
    except ImportError:
        return None
