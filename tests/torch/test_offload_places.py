"""Where what is offloaded lies: host memory in its exact size, pinned or not, and disk."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from tests.torch.faulty import Faulty
from tests.torch.needs import torch
from tests.torch.training import Training


def test_host_memory_is_set_aside_once_and_in_the_exact_size() -> None:
    training = Training()
    training.step()
    device = Faulty()
    offload = training.offload(device)

    for _ in range(3):
        offload.suspend()
        offload.resume()

    (size,) = device.pinned.values()
    assert size == offload.arena_bytes
    assert offload.resident_bytes() <= size < offload.resident_bytes() + 512 * 60 + 4096
    offload.close()
    assert device.pinned == {}
    assert offload.arena_bytes == 0


def test_what_comes_to_be_while_something_is_kept_finds_room_too() -> None:
    training = Training()
    offload = training.offload(tags=["model"])
    offload.suspend()
    first = offload.arena_bytes
    offload.resume()
    training.step()

    offload.suspend(["optimizer"])
    offload.suspend(["model", "gradients"])
    grown = offload.arena_bytes
    offload.resume()
    offload.suspend(["model", "gradients", "optimizer"])
    whole = offload.arena_bytes
    offload.resume()

    assert first < grown
    assert whole >= training.offload().resident_bytes()
    alone = Training()
    alone.step()
    assert training.digest() == alone.digest()


@pytest.mark.parametrize("stays", ["model", "optimizer"])
def test_host_memory_does_not_grow_while_a_part_stays_away(stays: str) -> None:
    training, device = Training(), Faulty()
    training.step()
    before, offload = training.digest(), training.offload(device)
    offload.suspend([stays])
    sizes = []

    for _ in range(5):
        offload.suspend(["lora"])
        offload.suspend(["gradients"])
        offload.resume(["lora"])
        offload.resume(["gradients"])
        sizes.append(offload.arena_bytes)
    device.copies_left = 1
    with pytest.raises(RuntimeError, match="the copy failed"):
        offload.suspend(["lora", "gradients"])
    device.copies_left = 1000
    offload.suspend(["lora"])
    offload.suspend(["gradients"])
    after = offload.arena_bytes
    offload.resume()

    assert [*sizes[1:], after] == [sizes[1]] * 5
    assert training.digest() == before


def test_host_memory_that_cannot_be_had_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    huge = torch.empty(0)
    training = Training()
    before, offload = training.digest(), training.offload()
    monkeypatch.setattr(huge.untyped_storage().__class__, "nbytes", lambda _: 1 << 50)

    with pytest.raises(MemoryError, match="bytes of host memory cannot be had"):
        offload.suspend()
    monkeypatch.undo()

    assert training.digest() == before


def test_memory_that_cannot_be_pinned_is_used_unpinned_and_said_so() -> None:
    training, device = Training(), Faulty()
    device.pins = False
    before, offload = training.digest(), training.offload(device)

    offload.suspend()
    offload.resume()

    assert (offload.pinned, training.digest()) == (False, before)


def on_disk(folder: Path) -> list[int]:
    """Return the sizes of the files without a name that this process has in *folder*."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    files = [link.stat() for link in links if str(link.readlink()).startswith(f"{folder}/")]
    return list({file.st_ino: file.st_size for file in files}.values())


def test_state_that_is_to_spill_goes_to_disk_and_leaves_no_name(tmp_path: Path) -> None:
    training = Training()
    training.step()
    before, offload = training.digest(), training.offload()
    size = offload.resident_bytes()

    offload.suspend([f"spill:{tmp_path}"])
    gone, (taken,) = offload.suspended_bytes, on_disk(tmp_path)
    named = list(tmp_path.iterdir())
    offload.resume()

    assert (gone, offload.arena_bytes, named) == (size, 0, [])
    assert taken >= size
    assert on_disk(tmp_path) == []
    assert training.digest() == before


def test_a_part_may_be_on_disk_and_another_in_host_memory(tmp_path: Path) -> None:
    training = Training()
    training.step()
    before, offload = training.digest(), training.offload()

    offload.suspend(["optimizer", f"spill:{tmp_path}"])
    offload.suspend(["model", "gradients"])
    assert 0 < offload.arena_bytes < offload.suspended_bytes
    offload.resume(["model"])
    assert on_disk(tmp_path)
    offload.resume()

    assert (training.digest(), on_disk(tmp_path)) == (before, [])


def test_disk_is_given_back_part_by_part(tmp_path: Path) -> None:
    training = Training()
    training.step()
    offload = training.offload()

    offload.suspend(["optimizer", f"spill:{tmp_path}"])
    for _ in range(3):
        offload.suspend(["gradients", f"spill:{tmp_path}"])
        assert len(on_disk(tmp_path)) == 2
        offload.resume(["gradients"])
        assert len(on_disk(tmp_path)) == 1
    offload.resume()


def test_a_disk_that_is_full_or_not_there_moves_nothing(tmp_path: Path) -> None:
    training = Training()
    before, offload = training.digest(), training.offload()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)

    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limit[1]))
    try:
        with pytest.raises(MemoryError, match=f"bytes cannot be had on disk in {tmp_path}: .*large"):
            offload.suspend([f"spill:{tmp_path}"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    with pytest.raises(MemoryError, match="cannot be had on disk in /nowhere"):
        offload.suspend(["spill:/nowhere"])

    assert (training.digest(), offload.suspended_bytes, on_disk(tmp_path)) == (before, 0, [])


def test_a_copy_to_disk_that_fails_leaves_all_on_the_device(tmp_path: Path) -> None:
    training, device = Training(), Faulty()
    before, offload = training.digest(), training.offload(device)
    device.copies_left = 3

    with pytest.raises(RuntimeError, match="the copy failed"):
        offload.suspend([f"spill:{tmp_path}"])

    assert (training.digest(), offload.suspended_bytes, on_disk(tmp_path)) == (before, 0, [])
