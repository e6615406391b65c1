from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from slurm_interleave.client.sim import SimError, checksum
from slurm_interleave.client.sim.checksum import PART, Checksum


def noise(size: int) -> np.ndarray:
    return np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)


def hide_xxhash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksum, "_xxhash", lambda: None)


@pytest.fixture(params=["xxh3", "crc32"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "crc32":
        hide_xxhash(monkeypatch)
    yield request.param
    assert checksum.of(memoryview(b"")).startswith(request.param)


@pytest.mark.parametrize("size", [0, 1, 300_001, PART, 2 * PART + 5])
def test_what_is_copied_in_parts_of_any_order_has_the_checksum_of_the_whole(kind: str, size: int) -> None:
    data, copy = memoryview(noise(size)), memoryview(bytearray(size))

    seen = Checksum(size)
    taken = [seen.take(part, data, copy) for part in reversed(seen.parts)]

    assert sum(taken) == size
    assert copy == data
    assert str(seen) == checksum.of(data)


def test_every_changed_byte_shows(kind: str) -> None:
    data = bytearray(noise(300_001))
    before = checksum.of(memoryview(data))

    for place in range(0, len(data), 3970):
        data[place] ^= 1
        assert checksum.of(memoryview(data)) != before
        data[place] ^= 1


@pytest.mark.parametrize("unit", [64, 512, 4096, PART])
def test_what_changes_places_shows(kind: str, unit: int) -> None:
    values = noise(2 * PART)
    before = checksum.of(memoryview(values))
    first, second = values[:unit].copy(), values[unit : 2 * unit].copy()
    values[:unit], values[unit : 2 * unit] = second, first

    assert checksum.of(memoryview(values)) != before


def test_a_checksum_is_compared_with_one_of_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    data = memoryview(noise(1000))
    fast = checksum.of(data)
    hide_xxhash(monkeypatch)
    slow = checksum.of(data)
    with pytest.raises(SimError, match="install the package xxhash to read it"):
        checksum.of(data, like=fast)
    monkeypatch.undo()

    assert fast != slow == checksum.of(data, like=slow)


def test_a_checksum_of_a_kind_that_is_not_known_is_refused_by_its_name() -> None:
    with pytest.raises(SimError, match="kind xxh3, which this release cannot make"):
        checksum.of(memoryview(b"state"), like="xxh3:1f")
