from __future__ import annotations

import resource
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from slurm_interleave.client.core.errors import BadArgument, WrongState
from slurm_interleave.client.core.ranges import as_tags
from slurm_interleave.client.integrations.torch_device import HostDevice
from slurm_interleave.client.integrations.torch_offload import Offload, Tensors
from tests.torch.needs import nn, torch
from tests.torch.training import Training


class Faulty(HostDevice):
    """Fails at a copy, or cannot pin."""

    def __init__(self) -> None:
        self.copies_left = -1
        self.pins = True
        self.pinned: dict[int, int] = {}

    def register(self, address: int, size: int) -> bool:
        if self.pins:
            assert address not in self.pinned
            self.pinned[address] = size
        return self.pins

    def unregister(self, address: int) -> None:
        del self.pinned[address]

    @contextmanager
    def copying(self, devices: Sequence[Any]) -> Iterator[Faulty]:
        assert devices == [torch.device("cpu")]
        yield self

    def copy(self, to: Any, source: Any, device: Any) -> None:
        if self.copies_left == 0:
            raise RuntimeError("the copy failed")
        self.copies_left -= 1
        super().copy(to, source, device)


def storages(training: Training) -> list[torch.UntypedStorage]:
    tensors = [*training.model.parameters(), *training.model.buffers()]
    return [tensor.untyped_storage() for tensor in tensors]


def test_training_that_is_moved_between_and_within_steps_ends_with_the_same_bits() -> None:
    alone, moved = Training(), Training()
    offload = moved.offload()

    def there_and_back() -> None:
        offload.suspend()
        assert all(storage.nbytes() == 0 for storage in storages(moved))
        offload.resume()

    losses = [alone.step() for _ in range(4)]
    again = []
    for _ in range(4):
        there_and_back()
        again.append(moved.step(between=there_and_back))

    assert again == losses
    assert moved.digest() == alone.digest()


def test_tied_and_viewed_storages_stay_tied() -> None:
    base = torch.arange(12.0)
    view, column = base[4:8], base.view(3, 4)[:, 1]
    layer = nn.Linear(2, 2, bias=False)
    layer.weight = nn.Parameter(base[:4].view(2, 2))
    offload = Offload(Tensors([layer], extra=[base, {"seen": [view, lambda: column]}]), HostDevice())

    offload.suspend()
    kept = offload.suspended_bytes
    offload.resume()
    base[4] = 40.0
    with torch.no_grad():
        layer.weight[0, 1] = 10.0

    assert kept == 12 * 4
    assert view[0] == 40.0
    assert column.tolist() == [10.0, 5.0, 9.0]
    assert layer.weight.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()


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


def test_only_the_regions_that_are_asked_for_go_and_come() -> None:
    training = Training()
    training.step()
    offload = training.offload(tags=["optimizer"])
    state = training.optimizer.state[training.model.lora_A]["exp_avg"]

    offload.suspend()
    assert state.untyped_storage().nbytes() == 0
    assert training.model.lora_A.untyped_storage().nbytes() > 0
    offload.suspend(["lora"])
    assert training.model.lora_A.untyped_storage().nbytes() == 0
    assert training.model.embed.weight.untyped_storage().nbytes() > 0
    offload.resume(["lora"])
    assert training.model.lora_A.untyped_storage().nbytes() > 0
    assert state.untyped_storage().nbytes() == 0
    offload.resume()

    alone = Training()
    alone.step()
    assert training.digest() == alone.digest()


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


@pytest.mark.parametrize("copies", [0, 3])
def test_a_suspend_that_fails_leaves_all_on_the_device(copies: int) -> None:
    training, device = Training(), Faulty()
    before, offload = training.digest(), training.offload(device)
    device.copies_left = copies

    with pytest.raises(RuntimeError, match="the copy failed"):
        offload.suspend()
    assert (training.digest(), offload.suspended_bytes) == (before, 0)
    device.copies_left = -1
    offload.suspend()
    offload.resume()

    assert training.digest() == before


@pytest.mark.parametrize("copies", [0, 3])
def test_a_resume_that_fails_leaves_all_in_host_memory(copies: int) -> None:
    training, device = Training(), Faulty()
    before, offload = training.digest(), training.offload(device)
    offload.suspend()
    kept = offload.suspended_bytes
    device.copies_left = copies

    with pytest.raises(RuntimeError, match="the copy failed"):
        offload.resume()
    assert offload.suspended_bytes == kept
    assert all(storage.nbytes() == 0 for storage in storages(training))
    device.copies_left = -1
    offload.resume()

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


def test_both_may_be_repeated() -> None:
    training = Training()
    before, offload = training.digest(), training.offload()

    offload.suspend()
    offload.suspend()
    offload.resume()
    offload.resume()

    assert training.digest() == before


def test_memory_that_is_not_torchs_own_is_left_and_counted() -> None:
    foreign = torch.frombuffer(bytearray(64), dtype=torch.uint8)
    offload = Offload(Tensors([], extra=[foreign, torch.zeros(4)]), HostDevice())

    offload.suspend()

    assert (offload.fixed_bytes(), foreign.untyped_storage().nbytes()) == (64, 64)
    assert offload.suspended_bytes == 16


def test_a_process_at_work_is_not_moved() -> None:
    training, working = Training(), threading.Event()
    offload = training.offload(busy=working.is_set)
    working.set()

    with pytest.raises(WrongState, match="yield first"):
        offload.suspend()
    working.clear()
    offload.suspend()

    assert offload.suspended_bytes > 0


def test_a_region_that_there_is_not_is_refused() -> None:
    training = Training()

    with pytest.raises(BadArgument, match="no region 'weights'; there are model"):
        training.offload(tags=["weights"])
    with pytest.raises(BadArgument, match="no region 'kv_cache'"):
        training.offload().suspend(["kv_cache"])
    with pytest.raises(WrongState, match="use mode offload"):
        training.offload().suspend(discard=True)


def test_several_named_copies_stand_side_by_side() -> None:
    training = Training()
    offload = training.offload()
    adapter = training.model.lora_A
    first = adapter.detach().clone()

    assert offload.save("task-a", ["lora"]) == adapter.nbytes
    training.step()
    second = adapter.detach().clone()
    offload.save("task-b", ["lora"])
    offload.load("task-a")
    assert torch.equal(adapter, first)
    offload.suspend()
    with pytest.raises(WrongState, match="resume first"):
        offload.load("task-b")
    offload.resume()
    offload.load("task-b")

    assert torch.equal(adapter, second)
    offload.forget("task-b")
    with pytest.raises(WrongState, match="no snapshot task-b; there are: task-a"):
        offload.load("task-b")


def test_ranges_that_a_command_names_are_copied_and_brought_back() -> None:
    training = Training()
    offload = training.offload()
    weight = training.model.embed.weight
    start = weight.untyped_storage().data_ptr()
    tags = as_tags("rows", [(start + 2 * 96, 96), (start, 96)])
    before = weight.detach().clone()

    offload.suspend(tags)
    with torch.no_grad():
        weight.zero_()
    offload.resume(tags)

    assert torch.equal(weight[0], before[0])
    assert weight[1].abs().sum() == 0
    assert torch.equal(weight[2], before[2])
    with pytest.raises(BadArgument, match="are in no storage"):
        offload.suspend(as_tags("rows", [(1, 8)]))
    with pytest.raises(WrongState, match="has no copy of these"):
        offload.resume(as_tags("rows", [(start, 8)]))
    for bad in (
        ["snapshot:x"],
        ["snapshot:x", "region:y"],
        ["snapshot:x", "model"],
        ["snapshot:", "region:1+1"],
    ):
        with pytest.raises(BadArgument):
            offload.suspend(bad)
