"""Snapshot and restore of one job: all its processes, or none."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent import job_processes, processes
from slurm_interleave.node_agent.backends.cuda import requirements, table
from slurm_interleave.node_agent.backends.cuda.census import Census, Unsavable
from slurm_interleave.node_agent.backends.cuda.gang import Failure, Gang, Limits
from slurm_interleave.node_agent.backends.cuda.helpers import HelperLost, Helpers, HelperUnusable
from slurm_interleave.node_agent.backends.cuda.records import Record, Records
from slurm_interleave.node_agent.backends.cuda.requirements import Facts, Way
from slurm_interleave.node_agent.backends.cuda.settings import CudaConfig
from slurm_interleave.node_agent.backends.cuda.sight import Gpu, Sight, by_device
from slurm_interleave.node_agent.backends.cuda.table import Call, State, Verdict
from slurm_interleave.node_agent.backends.protocol import Target
from slurm_interleave.node_agent.contexts import Outcome
from slurm_interleave.node_agent.job_processes import Owner
from slurm_interleave.node_agent.processes import Process
from slurm_interleave.node_agent.waits import CANCELLED

log = logging.getLogger(__name__)
_FORWARD = 2 / 3  # of the time; the rest is for undoing
_ROUNDS = 10
_LAUNCH_JOB = "CUDA_CHECKPOINT_JOB_FILE"
_FAILURES = (HelperLost, HelperUnusable, Unsavable, OSError)


class Moves:
    """Moves the state of jobs with the driver's calls."""

    def __init__(
        self,
        config: CudaConfig,
        helpers: Helpers,
        sight: Sight,
        records: Records,
        owners: Callable[[], Mapping[str, Owner]],
        facts: Facts,
    ) -> None:
        """*owners* gives the jobs of this node."""
        self._config = config
        self._helpers = helpers
        self._sight = sight
        self._records = records
        self._owners = owners
        self._no_map = requirements.can_map(facts)
        self._toggles = requirements.way(facts) is Way.TOGGLE
        self._census = Census(helpers, sight)
        self._never: dict[str, str] = {}  # jobs that cannot be saved, and why
        self._warned: set[str] = set()

    async def snapshot(self, target: Target) -> Outcome:
        """Save the job; if that fails for one process, let all run on."""
        if target.job in self._never:
            return Outcome(Context.RESIDENT, error=f"not tried again: {self._never[target.job]}")
        with self._gang() as gang:
            limits, undoing = self._limits(target)
            failures: list[Failure] = []
            error = await _tried(self._hold(gang, target, limits))
            if not error and not gang.processes:
                return Outcome(Context.NONE)
            before, sizes = dict(self._sight.gpus), self._sight.sizes(gang.processes)
            held = by_device(sizes.values())
            limits.bytes, limits.sizes, undoing.sizes = sum(held.values()), sizes, sizes
            if not error:
                self._records.intend(target.job, self._saved(gang, target, held))
                failures = await gang.each(Call.CHECKPOINT, limits)
                error = "; ".join(map(str, failures)) or await self._cancelled(target, sizes)
            if error:
                self._never.update((target.job, str(each)) for each in failures if each.code in table.NEVER)
                undoing.bytes = limits.bytes
                outcome = await self._back_on(gang, undoing, sizes, error)
                self._records.intend(target.job, None)
                return outcome
            return await self._released(gang, target, before, sizes)

    async def restore(self, target: Target) -> Outcome:
        """Bring the job back; if that fails for one process, all stay saved."""
        with self._gang() as gang:
            limits, undoing = self._limits(target)
            if error := await _tried(self._find_saved(gang, target.job)):
                return Outcome(Context.SAVED, error=error)
            saved = gang.at(State.CHECKPOINTED)
            if not gang.processes and gang.dropped:
                return Outcome(Context.RESIDENT)
            if not gang.processes:
                return Outcome(Context.NONE, error=f"job {target.job} has no processes on this node any more")
            record = self._records.get(target.job) or Record(True, tuple(saved))
            limits.bytes = undoing.bytes = record.total
            error, limits.pairs = self._map(record, target)
            if not error and saved:
                places = dict(limits.pairs)
                needed = {places.get(uuid, uuid): size for uuid, size in record.bytes.items()}
                error = await _tried(self._room(needed, len(saved) if limits.store else 0))
            if error or self._is_cancelled(target):
                return Outcome(Context.SAVED, error=error or CANCELLED)
            failures = await gang.each(Call.RESTORE, limits, saved)
            if failures or self._is_cancelled(target):
                return await self._back_off(gang, undoing, failures)
            undoing.pairs = limits.pairs
            return await self._let_go(gang, target, undoing, record)

    async def recover(self, job: str, deadline_s: float) -> None:
        """Find out where a job is that an earlier agent left, and make whole what that one left half done."""
        with self._gang() as gang:
            target = Target(job, (), deadline_s)
            limits, _ = self._limits(target)
            if error := await _tried(self._find_saved(gang, job, running=True)):
                log.warning("cuda.unrecovered", extra={"job": job, "reason": error})
                return
            if not gang.processes:
                self._records.forget(job)
                return
            record = self._records.get(job)
            saved, members = gang.at(State.CHECKPOINTED), tuple(gang.processes)
            if len(saved) < len(members):
                sizes = record.bytes if record and saved else {}
                full = bool(saved) and bool(await _tried(self._sight.wait_room(sizes, 0, 0)))
                await gang.bring(State.CHECKPOINTED if full else State.RUNNING, limits)
                saved = gang.at(State.CHECKPOINTED)
            record = replace(record or Record(False, ()), saved=bool(saved), processes=members)
            self._records.put(job, record)

    def forget(self, job: str) -> None:
        """The job is over."""
        if store := self._store(job):
            shutil.rmtree(store, ignore_errors=True)
        self._records.forget(job)
        self._never.pop(job, None)
        self._warned.discard(job)

    @contextlib.contextmanager
    def _gang(self) -> Iterator[Gang]:
        gang = Gang(self._helpers)
        gang.blind = self._toggles
        try:
            yield gang
        finally:
            gang.close()

    def _limits(self, target: Target) -> tuple[Limits, Limits]:
        """Return those for going forward, and those for undoing."""
        now = asyncio.get_running_loop().time()
        lock_s, store = self._config.lock_timeout_s, self._store(target.job)
        forward, undoing = now + _FORWARD * target.deadline_s, now + target.deadline_s
        return Limits(forward, lock_s, store=store, stop=target.stop), Limits(undoing, lock_s, store=store)

    def _store(self, job: str) -> str:
        """Return the folder of its copies: where they are, or else where the next ones go; "" for none."""
        if (record := self._records.get(job)) is not None and record.saved:
            return record.store
        return str(self._config.own_store / job) if self._config.own_store else ""

    async def _hold(self, gang: Gang, target: Target, limits: Limits) -> str:
        """Lock all processes, with those born meanwhile, until there are no more."""
        for _ in range(_ROUNDS):
            await self._sight.look()
            left_alone = [each for each in gang.dropped if not any(self._sight.used_by(each.pid).values())]
            new = await self._census.take(target.job, self._owner(target.job), [*gang.processes, *left_alone])
            if target.stop.is_set():
                return CANCELLED
            if not new:
                return ""
            self._look_at_variables(gang, target.job, new)
            gang.add(new)
            if self._toggles and len(gang.processes) > 1:
                return f"{len(gang.processes)} of its processes use CUDA, and this driver can save one"
            if failures := await gang.each(Call.LOCK, limits, new):
                return "; ".join(map(str, failures))
        return f"its processes did not settle in {_ROUNDS} rounds: new ones use the devices again and again"

    async def _find_saved(self, gang: Gang, job: str, *, running: bool = False) -> str:
        """Make those processes members that are saved or locked; *running*: the others too."""
        await self._sight.look()
        found = await self._census.take(job, self._owner(job))
        if self._toggles and (record := self._records.get(job)) is not None and record.saved:
            # Such a driver does not know whom it has saved.
            known = (each for each in record.processes if job_processes.is_alive(each))
            found += [each for each in known if each not in found]
        self._look_at_variables(gang, job, found)
        gang.add(found)
        await gang.ask_all()
        if not running:
            gang.drop(gang.at(State.RUNNING))
        return ""

    async def _room(self, needed: Mapping[str, int], contexts: int) -> str:
        """Wait for room for *needed*, and for so many *contexts* of helpers that copy."""
        headroom = self._config.headroom_bytes + contexts * self._config.helper_context_bytes
        return await self._sight.wait_room(needed, headroom, self._config.release_timeout_s)

    async def _released(
        self, gang: Gang, target: Target, before: Mapping[str, Gpu], sizes: Mapping[int, Mapping[str, int]]
    ) -> Outcome:
        """Say that it is saved, and whether its memory is free, which the driver's word does not prove."""
        pids = {process.pid for process in (*gang.processes, *gang.dropped)}
        held = by_device(sizes.values())
        error = await _tried(self._sight.wait_freed(before, held, pids, self._config.release_timeout_s))
        if error and (owner := self._owners().get(target.job)) is not None:
            error += await _tried(self._census.holders(target.job, owner, pids))
        # Where NVML does not know what each has: what came free is what it was.
        if len(sizes) < len(gang.processes):
            now = self._sight.gpus
            freed = {uuid: now[uuid].free - before[uuid].free for uuid in before.keys() & now.keys()}
            held = {uuid: max(size, held.get(uuid, 0)) for uuid, size in freed.items() if size > 0}
        record = self._saved(gang, target, held)
        self._records.put(target.job, record)
        return Outcome(Context.SAVED, record.total, error)

    def _saved(self, gang: Gang, target: Target, held: dict[str, int]) -> Record:
        return Record(True, tuple(gang.processes), held, target.devices, store=self._store(target.job))

    async def _back_on(
        self, gang: Gang, limits: Limits, sizes: Mapping[int, Mapping[str, int]], error: str
    ) -> Outcome:
        """Undo a snapshot."""
        away = [sizes.get(process.pid, {}) for process in gang.at(State.CHECKPOINTED)]
        if away and (
            full := await _tried(self._sight.wait_room(by_device(away), 0, self._config.release_timeout_s))
        ):
            return Outcome(Context.FAULTED, error=f"{error}; it cannot be brought back: {full}")
        if failures := await gang.bring(State.RUNNING, limits):
            return Outcome(Context.FAULTED, error=f"{error}; not undone: {'; '.join(map(str, failures))}")
        return Outcome(Context.RESIDENT, error=error)

    async def _back_off(self, gang: Gang, limits: Limits, failures: Sequence[Failure]) -> Outcome:
        """Undo a restore: the devices are for somebody else."""
        error = "; ".join(map(str, failures)) or CANCELLED
        undone = await gang.bring(State.CHECKPOINTED, limits)
        if undone:
            error += f"; not undone: {'; '.join(map(str, undone))}"
        if undone or any(failure.verdict is Verdict.LOST for failure in failures):
            return Outcome(Context.FAULTED, error=error)
        return Outcome(Context.SAVED, error=error)

    def _is_cancelled(self, target: Target) -> bool:
        """Tell whether the job is to be where it was: not one that has ended, since it is being killed."""
        return target.stop.is_set() and target.job in self._owners()

    async def _cancelled(self, target: Target, sizes: Mapping[int, Mapping[str, int]]) -> str:
        """Say the same in words, if what was saved finds room."""
        held, within_s = by_device(sizes.values()), self._config.release_timeout_s
        full = self._is_cancelled(target) and await _tried(self._sight.wait_room(held, 0, within_s))
        return CANCELLED if full == "" else ""

    async def _let_go(self, gang: Gang, target: Target, limits: Limits, record: Record) -> Outcome:
        if await gang.each(Call.UNLOCK, limits) and (failures := await gang.bring(State.RUNNING, limits)):
            return Outcome(Context.FAULTED, error="; ".join(map(str, failures)))
        places = dict(limits.pairs)
        there = {places.get(uuid, uuid): size for uuid, size in record.bytes.items()}
        self._records.put(target.job, Record(False, tuple(gang.processes), there, target.devices))
        return Outcome(Context.RESIDENT, record.total)

    def _map(self, record: Record, target: Target) -> tuple[str, list[tuple[str, str]]]:
        """Return why the job cannot come back to *target*'s devices, or the driver's map to them."""
        if record.pairs:
            return "", list(record.pairs)
        if not record.devices or record.devices == target.devices:
            return "", []
        places = {gpu.index: gpu for gpu in self._sight.gpus.values()}
        if lost := {*record.devices, *target.devices} - places.keys():
            return f"device_lost: NVML does not find device {', '.join(map(str, sorted(lost)))} any more", []
        old, new = ([places[index] for index in some] for some in (record.devices, target.devices))
        if self._no_map:
            return f"it was saved on other devices: {self._no_map}", []
        if [gpu.name for gpu in old] != [gpu.name for gpu in new]:
            return f"it was saved on {old[0].name}, and cannot come back on {new[0].name}", []
        every = [places[index].uuid for index in sorted(places)]
        return "", table.device_map(every, [gpu.uuid for gpu in old], [gpu.uuid for gpu in new])

    def _owner(self, job: str) -> Owner:
        owner = self._owners().get(job)
        if owner is None:
            raise HelperUnusable(f"job {job} is not on this node")
        return owner

    def _look_at_variables(self, gang: Gang, job: str, new: Sequence[Process]) -> None:
        for process in new:
            variables = processes.variables(process.pid)
            gang.in_turn = gang.in_turn or _LAUNCH_JOB in variables
            if job not in self._warned and (names := requirements.environment_cautions(variables)):
                self._warned.add(job)
                log.warning("cuda.environment", extra={"job": job, "wanted": "0", "found": ", ".join(names)})


async def _tried(work: Awaitable[str]) -> str:
    """Return what *work* gives; of one that could not be done, why."""
    try:
        return await work
    except _FAILURES as error:
        return str(error)
