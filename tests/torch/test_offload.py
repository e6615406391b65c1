"""State that goes to host memory and comes back: all of it or a part, or not at all where something fails."""

from __future__ import annotations

import threading

import pytest

from slurm_interleave.client.core.errors import BadArgument, WrongState
from slurm_interleave.client.core.ranges import as_tags
from slurm_interleave.client.integrations.torch_device import HostDevice
from slurm_interleave.client.integrations.torch_offload import Offload, Tensors
from tests.torch.faulty import Faulty
from tests.torch.needs import nn, torch
from tests.torch.training import Training, storages


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


def test_ranges_of_a_process_at_work_are_neither_copied_nor_brought_back() -> None:
    training, working = Training(), threading.Event()
    offload, weight = training.offload(busy=working.is_set), training.model.embed.weight
    tags = as_tags("x", [(weight.untyped_storage().data_ptr(), 96)])
    offload.suspend(tags)
    with torch.no_grad():
        weight.zero_()
    working.set()

    with pytest.raises(WrongState, match="yield first"):
        offload.suspend(tags)
    with pytest.raises(WrongState, match="yield first"):
        offload.resume(tags)
    assert weight.abs().sum() == 0
    working.clear()
    offload.resume(tags)

    assert weight[0].abs().sum() > 0


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


def test_many_small_ranges_and_a_whole_storage_come_back_as_they_were() -> None:
    training = Training()
    offload, weight = training.offload(), training.model.embed.weight
    start, whole = weight.untyped_storage().data_ptr(), weight.untyped_storage().nbytes()
    before = weight.detach().clone()
    for ranges in ([(start + 8 * at, 8) for at in range(whole // 8)], [(start, whole)]):
        offload.suspend(as_tags("x", ranges))
        with torch.no_grad():
            weight.zero_()

        offload.resume(as_tags("x", ranges))

        assert torch.equal(weight, before)


def test_where_nothing_is_on_the_devices_there_is_nothing_to_copy() -> None:
    training = Training()
    offload = training.offload()
    offload.suspend()

    with pytest.raises(WrongState, match="there is nothing on the devices to copy"):
        offload.save("a")


def test_a_copy_that_fails_leaves_none_of_its_name_and_the_state_as_it_is() -> None:
    training, device = Training(), Faulty()
    offload = training.offload(device)
    offload.save("a")
    offload.save("b")
    training.step()
    now = training.digest()
    device.copies_left = 3

    with pytest.raises(RuntimeError, match="the copy failed"):
        offload.save("a")
    device.copies_left = -1

    with pytest.raises(WrongState, match="there is no snapshot a; there are: b"):
        offload.load("a")
    assert training.digest() == now
    assert offload.save("a") > 0


def test_a_copy_of_the_same_name_uses_the_memory_that_it_has_and_gives_it_back_once_forgotten() -> None:
    training, device = Training(), Faulty()
    offload = training.offload(device)

    offload.save("a")
    first = sum(device.pinned.values())
    for _ in range(8):
        offload.save("a")
    again = sum(device.pinned.values())
    offload.save("b")
    both = sum(device.pinned.values())
    offload.forget("a")
    offload.close()

    assert 0 < first == again < both
    assert device.pinned == {}


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
    whole = weight.untyped_storage().nbytes()
    for address, size in ((start, whole + 1), (start - 1, 8), (start + whole, 1)):
        with pytest.raises(BadArgument, match=f"{size} bytes at {address:#x} are in no storage"):
            offload.suspend(as_tags("rows", [(address, size)]))
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
