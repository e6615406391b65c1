from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from slurm_interleave.client.core.states import Context
from slurm_interleave.client.sim import NotResident, OutOfMemory, SimDevice, SimError
from slurm_interleave.client.sim.arena import Arena
from slurm_interleave.client.sim.settings import SimConfig

KIB = 1024


def test_a_buffer_gives_back_what_was_put(a: SimDevice) -> None:
    values = np.arange(24, dtype=np.float64).reshape(2, 3, 4)

    buffer = a.put(values)

    assert np.array_equal(buffer.get(), values)
    assert buffer.shape == (2, 3, 4)
    assert buffer.dtype == np.float64


def test_a_kernel_works_in_place_and_its_result_is_the_hosts(a: SimDevice) -> None:
    buffer = a.put(np.ones(8))

    def double(values: np.ndarray, factor: int) -> np.ndarray:
        values *= factor
        return values

    result = a.run("double", double, buffer, 2)
    buffer.set(np.zeros(8))

    assert result.tolist() == [2.0] * 8


def test_beyond_capacity_is_out_of_memory_with_the_numbers(a: SimDevice, arena: Arena) -> None:
    a.empty(700 * KIB, np.uint8)

    with pytest.raises(OutOfMemory, match=f"{400 * KIB} bytes asked for, {324 * KIB} of {1024 * KIB} free"):
        a.empty(400 * KIB, np.uint8)

    assert arena.violations() == []


def test_freed_memory_can_be_used_again(a: SimDevice) -> None:
    a.empty(700 * KIB, np.uint8).free()

    assert a.empty(1024 * KIB, np.uint8).nbytes == a.total_bytes == a.used_bytes


def test_two_jobs_resident_beyond_capacity_are_a_violation(a: SimDevice, b: SimDevice, arena: Arena) -> None:
    a.empty(700 * KIB, np.uint8)

    with pytest.raises(OutOfMemory, match=f"job a holds {700 * KIB} bytes"):
        b.empty(700 * KIB, np.uint8)

    assert [(v["kind"], v["jobs"]) for v in arena.violations()] == [("over-capacity", ["a", "b"])]


def test_two_jobs_at_work_at_one_time_are_a_violation(a: SimDevice, b: SimDevice, arena: Arena) -> None:
    a.run("rollout", lambda: b.run("train", lambda: None))

    assert [(v["kind"], v["jobs"]) for v in arena.violations()] == [("two-at-work", ["a", "b"])]


def test_two_kernels_of_one_job_or_of_two_devices_are_no_violation(a: SimDevice, arena: Arena) -> None:
    other = SimDevice(arena, 1, "b")

    a.run("rollout", lambda: (a.run("copy", lambda: None), other.run("train", lambda: None)))

    assert arena.violations() == []


def test_work_on_a_saved_buffer_fails_loudly(a: SimDevice, arena: Arena) -> None:
    buffer = a.put(np.arange(10))
    arena.snapshot("a")

    for use in (buffer.get, lambda: buffer.set(np.zeros(10)), lambda: a.run("k", len, buffer)):
        with pytest.raises(NotResident, match="job a: its device state is in host memory; acquire"):
            use()
    with pytest.raises(NotResident):
        a.empty(1)


def test_work_on_a_freed_buffer_fails(a: SimDevice) -> None:
    buffer = a.put(np.arange(10))
    buffer.free()

    with pytest.raises(NotResident, match="was freed"):
        buffer.get()


def test_a_kernel_that_raises_leaves_the_device_free(a: SimDevice, b: SimDevice, arena: Arena) -> None:
    with pytest.raises(ZeroDivisionError):
        a.run("bad", lambda: 1 // 0)

    b.run("good", lambda: None)

    assert arena.violations() == []


def test_each_kernel_is_recorded_and_lasts_as_long_as_asked(arena: Arena, folder: Path) -> None:
    SimDevice(arena, 1, "a", node="n1").run("rollout", lambda: None, seconds=0.02)

    (line,) = [json.loads(line) for line in (folder / "work.jsonl").read_text().splitlines()]
    assert (line["job"], line["name"], line["device"]) == ("a", "rollout", "n1/1")
    assert line["end"] - line["start"] >= 0.02


def test_a_kernel_over_two_devices_is_refused(a: SimDevice, arena: Arena) -> None:
    here, there = a.put(np.zeros(1)), SimDevice(arena, 1, "a").put(np.zeros(1))

    with pytest.raises(SimError, match=r"devices \[0, 1\]"):
        a.run("add", np.add, here, there)


def test_a_device_opens_from_the_jobs_environment(folder: Path) -> None:
    environ = {
        "INTERLEAVE_SIM_DIR": str(folder),
        "INTERLEAVE_JOB_ID": "17",
        "CUDA_VISIBLE_DEVICES": "SIM-n1-1,SIM-n1-0",
    }

    first, second = SimDevice.open(environ=environ), SimDevice.open(1, environ)

    assert (first.index, second.index, first.job) == (1, 0, "17")
    with pytest.raises(SimError, match="no device at place 2"):
        SimDevice.open(2, environ)


def test_a_job_outside_of_interleaving_owns_its_buffers_by_its_process(folder: Path) -> None:
    device = SimDevice.open(environ={"INTERLEAVE_SIM_DIR": str(folder)})

    assert (device.index, device.job) == (0, f"local-{os.getpid()}")


def test_the_size_of_devices_in_use_does_not_change(a: SimDevice, folder: Path) -> None:
    buffer = a.put(np.zeros(1))

    with pytest.raises(SimError, match="memory_mib = 2, but its devices are in use with 1 MiB"):
        Arena.open(folder, SimConfig(memory_mib=2))
    buffer.free()

    assert Arena.open(folder, SimConfig(memory_mib=2)).config.memory_mib == 2


def test_an_unknown_job_has_nothing(arena: Arena) -> None:
    assert arena.memory_of("nobody").context is Context.NONE
    assert arena.snapshot("nobody") == arena.restore("nobody") == 0
    arena.discard("nobody")
