from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_interleave.client.sim import checksum

ROW = 16640


def noise(size: int) -> np.ndarray:
    return np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)


@given(st.integers(0, 70 * ROW))
def test_both_ways_of_folding_give_the_same(size: int) -> None:
    data = memoryview(noise(size))

    copies = bytearray(size), bytearray(size)
    folds = (checksum.fold_plain, checksum.fold_numpy)
    results = {fold(data, memoryview(copy)) for fold, copy in zip(folds, copies, strict=True)}

    assert len(results) == 1
    assert copies == (bytes(data), bytes(data))
    assert checksum.fold_numpy(data) in results


def test_every_changed_byte_shows() -> None:
    data = bytearray(noise(2 * ROW + 100))
    before = checksum.of(memoryview(data))

    for place in range(0, len(data), 397):
        data[place] ^= 1
        assert checksum.of(memoryview(data)) != before
        data[place] ^= 1


@pytest.mark.parametrize("unit", [64, 512, 4096, checksum.CHUNK])
def test_what_changes_places_shows(unit: int) -> None:
    values = noise(4 * checksum.CHUNK)
    before = checksum.of(memoryview(values))
    first, second = values[:unit].copy(), values[unit : 2 * unit].copy()
    values[:unit], values[unit : 2 * unit] = second, first

    assert checksum.of(memoryview(values)) != before
