"""Two jobs on two devices, in any order of steps: no byte is lost, no two buffers meet."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from slurm_interleave.client.core.states import Context
from slurm_interleave.client.sim import NotResident, OutOfMemory, SimDevice
from slurm_interleave.client.sim.arena import Arena
from slurm_interleave.client.sim.device import SimBuffer
from slurm_interleave.client.sim.settings import SimConfig

CAPACITY = 1 << 20
jobs = st.sampled_from(["a", "b"])
devices = st.sampled_from([0, 1])
sizes = st.sampled_from([0, 1, 4096, 5000, 100_000, 300_000, 700_000])


class TwoJobs(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="interleave-test-", dir="/dev/shm"))
        self.arena = Arena.open(self.folder, SimConfig(devices=2, memory_mib=1))
        self.kept: dict[str, list[tuple[SimBuffer, np.ndarray]]] = {"a": [], "b": []}
        self.saved = {"a": False, "b": False}
        self.seed = 0

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @rule(job=jobs, device=devices, size=sizes)
    def allocate(self, job: str, device: int, size: int) -> None:
        self.seed += 1
        values = np.random.default_rng(self.seed).integers(0, 256, size, dtype=np.uint8)
        free = CAPACITY - self.arena.used_bytes(device)
        try:
            buffer = SimDevice(self.arena, device, job).put(values)
        except NotResident:
            assert self.saved[job]
        except OutOfMemory:
            # Free memory may lie in pieces, but where all is free there is one piece.
            assert free < CAPACITY
        else:
            assert not self.saved[job]
            assert size <= free
            self.kept[job].append((buffer, values))

    @rule(job=jobs, which=st.integers(0, 9))
    def free(self, job: str, which: int) -> None:
        if self.kept[job]:
            buffer, _ = self.kept[job].pop(which % len(self.kept[job]))
            buffer.free()
            self.saved[job] = self.saved[job] and bool(self.kept[job])

    @rule(job=jobs)
    def snapshot(self, job: str) -> None:
        self.arena.snapshot(job)
        self.saved[job] = bool(self.kept[job])

    @rule(job=jobs, mapping=st.sampled_from([{}, {0: 1}, {0: 1, 1: 0}]))
    def restore(self, job: str, mapping: dict[int, int]) -> None:
        try:
            self.arena.restore(job, mapping)
        except OutOfMemory:
            assert self.saved[job]
        else:
            self.saved[job] = False

    @rule(job=jobs)
    def discard(self, job: str) -> None:
        self.arena.discard(job)
        self.kept[job], self.saved[job] = [], False

    @rule()
    def recover(self) -> None:
        self.arena.recover()

    @invariant()
    def every_byte_is_where_it_belongs(self) -> None:
        for job, kept in self.kept.items():
            for buffer, values in kept:
                if not self.saved[job]:
                    assert np.array_equal(buffer.get(), values)

    @precondition(lambda self: any(self.kept.values()))
    @invariant()
    def no_two_buffers_meet(self) -> None:
        for device in (0, 1):
            end = 0
            for offset, size in self.arena.look().taken(device):
                assert offset >= end
                end = offset + size
            assert end <= CAPACITY

    @invariant()
    def the_table_knows_what_is_saved(self) -> None:
        for job, saved in self.saved.items():
            expected = Context.SAVED if saved else Context.RESIDENT if self.kept[job] else Context.NONE
            assert self.arena.memory_of(job).context is expected


TwoJobs.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestTwoJobs = TwoJobs.TestCase
