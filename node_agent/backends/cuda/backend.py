"""The cuda backend as the agent sees it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent import job_processes, processes
from slurm_interleave.node_agent.backends.cuda import helpers, requirements
from slurm_interleave.node_agent.backends.cuda.carried import Pairs, Place, pairs
from slurm_interleave.node_agent.backends.cuda.helpers import HelperLost, Helpers, HelperUnusable
from slurm_interleave.node_agent.backends.cuda.moves import Moves
from slurm_interleave.node_agent.backends.cuda.probe import mps_runs, probe
from slurm_interleave.node_agent.backends.cuda.records import Record, Records
from slurm_interleave.node_agent.backends.cuda.requirements import MPS, Way
from slurm_interleave.node_agent.backends.cuda.settings import CudaConfig
from slurm_interleave.node_agent.backends.cuda.sight import Sight, by_device
from slurm_interleave.node_agent.backends.protocol import Backend, Charge, Device, Target, User
from slurm_interleave.node_agent.contexts import Outcome, Seen
from slurm_interleave.node_agent.job_processes import Owner
from slurm_interleave.node_agent.processes import Process
from slurm_interleave.node_agent.users import owner

log = logging.getLogger(__name__)
_RECOVER_S = 60.0


class CudaBackend(Backend):
    """Moves device state with the driver's checkpoint, through helper processes.

    `look` and `devices` answer from what was seen last, since a driver can keep its callers waiting.
    """

    name: ClassVar[str] = "cuda"
    in_app: ClassVar[bool] = False
    in_process: ClassVar[bool] = True
    pauses: ClassVar[bool] = True

    def __init__(
        self,
        config: CudaConfig,
        state_dir: Path,
        owners: Callable[[], Mapping[str, Owner]],
        spare: Path | None = None,
    ) -> None:
        """*owners* gives the jobs here; *spare* is for what *state_dir* does not take.

        Raises `ConfigError` with all reasons.
        """
        facts, gpus = probe(config.checkpoint_program, stores=bool(config.store))
        for caution in requirements.cautions(facts):
            log.warning("cuda.caution", extra={"caution": caution.name, "reason": caution.text})
        way = requirements.way(facts)
        program = "" if way is Way.FUNCTIONS else facts.tool
        command = helpers.command(program, toggles=way is Way.TOGGLE)
        self._facts = facts
        if config.store:
            self.in_process, self.charge = False, Charge.NODE  # type: ignore[misc]  # of this node
        self.keeps_bytes = config.app_keeps_bytes
        self.settles_s = config.release_timeout_s
        self.saves_to_kill = requirements.saves_to_kill(facts)
        self._config = config
        self._owners = owners
        self._helpers = Helpers(command, 2 * len(gpus) + 1, state_dir / "cuda.helpers")
        self._sight = Sight(self._helpers, gpus)
        self._records = Records(state_dir / "cuda.json", spare)
        self._moves = Moves(config, self._helpers, self._sight, self._records, owners, facts)
        self._moving: set[str] = set()
        self._watching: asyncio.Task[None] | None = None

    def devices(self) -> list[Device]:
        """Return the devices by the number of their /dev/nvidiaN, which Slurm counts by."""
        gpus = sorted(self._sight.gpus.values(), key=lambda gpu: gpu.index)
        return [Device(gpu.index, gpu.uuid, self.name, gpu.total, gpu.used) for gpu in gpus]

    def look(self, job: str) -> Seen | None:
        """Return what is known; None for a job that nothing was seen of yet."""
        record = self._records.get(job)
        if record is None:
            return None
        if not record.alive:
            return Seen(Context.NONE)
        return Seen(Context.SAVED if record.saved else Context.RESIDENT, record.total)

    @override
    async def look_now(self, job: str) -> Seen | None:
        """Ask NVML. Raises `OSError` where it gives no answer, or does not say how much the job has."""
        try:
            await self._sight.look()
        except (HelperLost, HelperUnusable) as error:
            raise OSError(f"NVML: {error}") from error
        self._note_users()
        record = self._records.get(job)
        for process in record.processes if record is not None else ():
            if None in self._sight.used_by(process.pid).values():
                raise OSError(f"NVML does not say what process {process.pid} has")
        return self.look(job)

    @override
    async def idle(self, job: str, devices: Sequence[int]) -> bool | None:
        """Ask NVML what the devices have done; a job without memory there is not idle, but about to begin."""
        seen, record = await self.look_now(job), self._records.get(job)
        if record is None or seen is None or seen.state is not Context.RESIDENT:
            return False
        loads = [gpu.load for gpu in self._sight.gpus.values() if gpu.index in devices]
        if None in loads:
            return None
        working = {pid for gpu in self._sight.gpus.values() for pid in gpu.working}
        return not (any(loads) or any(process.pid in working for process in record.processes))

    @override
    def caution(self, job: str) -> str:
        """Look for MPS, which may have been started since, and at the variables of the job's processes."""
        found = [MPS.text] if mps_runs() else []
        record = self._records.get(job)
        for process in record.processes if record is not None else ():
            if names := requirements.environment_cautions(processes.variables(process.pid)):
                found.append(f"process {process.pid} has {', '.join(names)}: saving it may fail unless 0")
                break
        return "; ".join(found)

    @override
    def users(self) -> list[User]:
        """Return who has memory on the devices, as last seen."""
        return [
            User(gpu.index, pid, working=pid in gpu.working)
            for gpu in self._sight.gpus.values()
            for pid, size in gpu.users.items()
            if size != 0
        ]

    @override
    def carried(self, job: str) -> dict[str, Any]:
        """Return where and how much: the driver does not say it of a process that it has saved."""
        record = self._records.get(job)
        if record is None or not (record.saved and record.devices):
            return {}
        place = self._place(record.devices)
        called = {new: old for old, new in record.pairs}  # its processes know their devices by older names
        every, mine = (tuple(called.get(uuid, uuid) for uuid in uuids) for uuids in (place.every, place.mine))
        pids = [process.pid for process in record.processes]
        return {**asdict(replace(place, every=every, mine=mine)), "bytes": record.bytes, "pids": pids}

    @override
    def refuses(self, target: Target, carried: Mapping[str, Any]) -> str:
        """Refuse another driver, and devices that the driver cannot take for those of before."""
        return self._adopted(target, carried)[0] if carried else ""

    @override
    async def came_back(self, target: Target, carried: Mapping[str, Any]) -> str:
        """Remember as saved who was so before, by process ids, which stay; the restore asks the driver."""
        owner = self._owners().get(target.job)
        if not carried or owner is None:
            return ""
        try:
            found = await asyncio.to_thread(job_processes.of_job, target.job, owner)
        except OSError as error:
            return str(error)
        members = tuple(process for process in found if process.pid in carried["pids"])
        if not members:
            return "none of the processes is here that had it"
        moved = self._adopted(target, carried)[1]
        self._records.put(target.job, Record(True, members, carried["bytes"], target.devices, moved))
        return ""

    def _adopted(self, target: Target, carried: Mapping[str, Any]) -> tuple[str, Pairs]:
        try:
            return pairs(Place.read(carried), self._place(target.devices))
        except (KeyError, TypeError) as error:
            return f"what was saved of its device state cannot be read: {error!r}", ()

    def _place(self, devices: Sequence[int]) -> Place:
        gpus = {gpu.index: gpu for gpu in self._sight.gpus.values()}
        every = tuple(gpus[index].uuid for index in sorted(gpus))
        mine = tuple(gpus[index].uuid for index in devices)
        card = gpus[devices[0]].name if devices else ""
        return Place(self._facts.driver, card, self._facts.constrained, every, mine)

    async def recover(self, jobs: Sequence[str]) -> None:
        """Ask the driver where each of *jobs* is; then keep watching the devices."""
        if not await self._helpers.wait_for_earlier(_RECOVER_S):
            log.warning("cuda.helpers_hang", extra={"seconds": _RECOVER_S})
        self._records.keep_only(jobs)
        if self._config.own_store is not None:
            for folder in self._config.own_store.glob("*"):
                if folder.name not in jobs:
                    shutil.rmtree(folder, ignore_errors=True)
        await asyncio.gather(*(self._moves.recover(job, _RECOVER_S) for job in jobs))
        self._watching = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Stop watching, and end the helpers; a call that runs ends by itself."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self._helpers.close()

    async def snapshot(self, target: Target) -> Outcome:
        """Copy to host memory of the processes, free the devices."""
        with self._during(target.job):
            return await self._moves.snapshot(target)

    async def restore(self, target: Target) -> Outcome:
        """Copy back if there is room."""
        with self._during(target.job):
            return await self._moves.restore(target)

    async def discard(self, target: Target) -> Outcome:
        """Forget it: the copy ends with the processes that hold it, and not before."""
        seen = self.look(target.job)
        if target.living and seen is not None and seen.state is not Context.NONE:
            error = f"job {target.job}: its processes keep its state until they end"
            return Outcome(seen.state, seen.bytes, error)
        self._moves.forget(target.job)
        return Outcome(Context.NONE)

    @contextlib.contextmanager
    def _during(self, job: str) -> Iterator[None]:
        self._moving.add(job)
        try:
            yield
        finally:
            self._moving.discard(job)

    async def _watch(self) -> None:
        """See who uses the devices, now and then."""
        blind, known = False, set(self._sight.gpus)
        await self._helpers.warm_up(len(known))
        while True:
            try:
                now = set(await self._sight.look())
                if lost := known - now:
                    log.error("cuda.device_lost", extra={"devices": sorted(lost)})
                known = now
                self._note_users()
                blind = False
            except (HelperLost, HelperUnusable, OSError) as error:
                if not blind:
                    log.warning("cuda.blind", extra={"reason": str(error)})
                blind = True
            await asyncio.sleep(self._config.look_s)

    def _note_users(self) -> None:
        """Note what jobs have on the devices; those that are saved, or on their way, are known better."""
        found = self._found()
        for job in {*found, *self._records.jobs()} - self._moving:
            known = self._records.get(job)
            living = known if known is not None and known.alive else None
            if living is not None and living.saved:
                continue
            users = found.get(job, {})
            members = {*users, *(living.processes if living is not None else ())}
            if members:
                self._records.put(job, Record(False, tuple(members), by_device(users.values())))

    def _found(self) -> dict[str, dict[Process, dict[str, int]]]:
        """Return what NVML lists of each job; 0 bytes where it does not know how many."""
        owners = self._owners()
        uids = {job: one.uid for job, one in owners.items()}
        registered = {one.pid: job for job, one in owners.items() if one.pid}
        found: dict[str, dict[Process, dict[str, int]]] = {}
        for gpu in self._sight.gpus.values():
            for pid, size in gpu.users.items():
                process = job_processes.identify(pid) if size != 0 else None
                job = owner(User(gpu.index, pid, working=False), uids, registered) if process else ""
                if process and job:
                    found.setdefault(job, {}).setdefault(process, {})[gpu.uuid] = size or 0
        return found
