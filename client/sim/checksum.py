"""A checksum about as fast as memory: rows of each chunk are XORed, and the result goes into a CRC-32.

A row is 260 cache lines, so that pages that change places show. NumPy does it where it is there, and block by
block, so that the cache has what is read twice; plain Python gives the same number, at a tenth of the speed.
"""

from __future__ import annotations

import functools
import importlib
import zlib
from collections.abc import Callable

_ROW = 16640
_BLOCK = 40  # rows; both copies of them stay in the cache
CHUNK = 16 * _BLOCK * _ROW


def take(source: memoryview, to: memoryview | None = None, before: int = 0) -> int:
    """Copy a chunk (`CHUNK` bytes, the last may be shorter) and return its checksum, after *before*.

    *to* None: copy nothing.
    """
    return zlib.crc32(_fold()(source, to), before)


def of(data: memoryview) -> int:
    """Return the checksum of *data*."""
    checksum = 0
    for start in range(0, len(data), CHUNK):
        checksum = take(data[start : start + CHUNK], before=checksum)
    return checksum


def fold_plain(source: memoryview, to: memoryview | None = None) -> bytes:
    """Copy, and return the XOR of all rows, the last padded with zeros."""
    if to is not None:
        to[:] = source
    folded = 0
    for start in range(0, len(source), _ROW):
        folded ^= int.from_bytes(source[start : start + _ROW], "little")
    return folded.to_bytes(_ROW, "little")


def fold_numpy(source: memoryview, to: memoryview | None = None) -> bytes:
    """Do the same, by NumPy."""
    import numpy as np

    whole = len(source) // _ROW * _ROW
    rest = fold_plain(source[whole:], None if to is None else to[whole:])
    if not whole:
        return rest
    rows = np.frombuffer(source[:whole], np.uint64).reshape(-1, _ROW // 8)
    copies = None if to is None else np.frombuffer(to[:whole], np.uint64).reshape(rows.shape)
    folded, part = np.frombuffer(rest, np.uint64).copy(), np.empty(_ROW // 8, np.uint64)
    for at in range(0, len(rows), _BLOCK):
        block = rows[at : at + _BLOCK]
        if copies is not None:
            np.copyto(copies[at : at + _BLOCK], block)
        np.bitwise_xor.reduce(block, axis=0, out=part)
        np.bitwise_xor(folded, part, out=folded)
    return folded.tobytes()


@functools.cache
def _fold() -> Callable[[memoryview, memoryview | None], bytes]:
    try:
        importlib.import_module("numpy")
    except ImportError:
        return fold_plain
    return fold_numpy
