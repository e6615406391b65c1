"""Jobs without Slurm: users register processes for the groups that the site declares, and end with them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pwd
import re
import signal
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from slurm_interleave.client.core.errors import BadArgument, Denied
from slurm_interleave.client.core.groups import DeclaredGroup
from slurm_interleave.client.core.hook_server import HookServer, Peer
from slurm_interleave.client.core.names import excerpt, parse_group_name, parse_job_id
from slurm_interleave.client.core.values import PID_MAX, PRIORITY_MAX, parse_number
from slurm_interleave.node_agent import processes
from slurm_interleave.node_agent.config import AgentConfig
from slurm_interleave.node_agent.processes import Process
from slurm_interleave.node_agent.state import Job, Reservation, State

log = logging.getLogger(__name__)
_PLAIN_USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_KILL_ROUNDS = 3
Start = Callable[[Mapping[str, Any], Reservation, Process], Awaitable[None]]


class Registrations:
    """Serves the socket, open to all users of the node, and ends each job when its process ends."""

    def __init__(
        self,
        config: AgentConfig,
        groups: Mapping[str, DeclaredGroup],
        state: State,
        start: Start,
        end: Callable[[str], Awaitable[None]],
        variables: Callable[[Job], dict[str, str]],
        saved_to_kill: Callable[[Job], Awaitable[str]],
    ) -> None:
        """*groups* are those of this node; *start* and *end* a job, *variables* is what it finds.

        *saved_to_kill* says why its processes may not be killed, and does what it takes.
        """
        self._config = config
        self._groups = groups
        self._state = state
        self._start = start
        self._end = end
        self._variables = variables
        self._saved_to_kill = saved_to_kill
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._watched: dict[int, Job] = {}  # by descriptor of the process
        self._ends: set[asyncio.Task[None]] = set()
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Registrations:
        """Watch the processes of jobs that an earlier agent registered; serve if groups are declared."""
        for job in [job for job in self._state.jobs.values() if job.request.pid]:
            self._watch_again(job)
        if self._groups:
            server = HookServer(self._config.register_socket, {"register": self.register}, to_all=True)
            await self._stack.enter_async_context(server)
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop serving and watching; the jobs go on."""
        await self._stack.aclose()
        for descriptor in list(self._watched):
            self._unwatch(descriptor)
        for task in self._ends:
            task.cancel()

    async def register(self, raw: dict[str, Any], peer: Peer) -> Mapping[str, Any]:
        """Register a process, by default the one that asks, as a job of its user.

        A process that is registered gets the same answer again, and so does one that names a job of its user.
        Raises `BadArgument`, `BadName`, `Denied`.
        """
        name, group = self._group(raw)
        pid = parse_number(raw.get("pid") or 0, "pid", PID_MAX) or peer.pid
        process, descriptor = processes.open_process(pid)
        try:
            if peer.uid not in (0, process.uid):
                raise Denied(f"process {process.pid} is not yours")
            job_id = self._job_id(raw, process)
            async with self._locks[job_id]:
                job = self._known(job_id, process)
                if job is None:
                    await self._begin(raw, peer, group, process, job_id)
                    job = self._state.jobs[job_id]
                    self._watch(job, os.dup(descriptor))
        finally:
            os.close(descriptor)
        if job.request.group != name:
            raise BadArgument(f"job {job.job_id} is in group {job.request.group}, not in {name}")
        return {"job": job.job_id, "variables": self._variables(job)}

    def _group(self, raw: Mapping[str, Any]) -> tuple[str, DeclaredGroup]:
        name = parse_group_name(str(raw.get("group") or ""))
        if name not in self._groups:
            raise BadArgument(
                f"group {name} is not declared for node {self._config.node}; declared are "
                f"{', '.join(sorted(self._groups))} ([groups.NAME] in interleave.toml)"
            )
        return name, self._groups[name]

    def _job_id(self, raw: Mapping[str, Any], process: Process) -> str:
        """Return the job's id: no user can name another's, nor a number of Slurm's."""
        name = str(raw.get("job") or f"{self._config.node}-{process.pid}")
        return parse_job_id(f"{_user(process.uid)}+{name}")

    def _known(self, job_id: str, process: Process) -> Job | None:
        for job in self._state.jobs.values():
            request = job.request
            is_it = (request.pid, request.started) == (process.pid, process.started)
            if job.ended or not (is_it or job.job_id == job_id):
                continue
            if not request.pid or request.uid != process.uid:
                raise Denied(f"job {job.job_id} is not yours")
            return job
        return None

    async def _begin(
        self, raw: Mapping[str, Any], peer: Peer, group: DeclaredGroup, process: Process, job_id: str
    ) -> None:
        user, name = _user(process.uid), str(raw["group"])
        if not group.open_to(user, process.uid):
            raise Denied(f"group {name} is not open to user {user}; [groups.{name}] users names those")
        named = raw.get("nodes") or ()
        if not isinstance(named, (list, tuple)):
            raise BadArgument(f"nodes: {excerpt(named)} is not a list of names")
        nodes = tuple(map(str, named)) or (self._config.node,)
        if self._config.node not in nodes or not set(nodes) <= set(group.nodes):
            raise BadArgument(
                f"nodes {', '.join(nodes)}: this node, {self._config.node}, must be among them, and all must "
                f"be nodes of group {name}: {', '.join(group.nodes)}"
            )
        nice = parse_number(raw.get("nice") or 0, "nice", PRIORITY_MAX, -PRIORITY_MAX)
        if nice < 0 and peer.uid != 0:
            raise Denied(f"nice {nice}: only root may raise a job, with less than 0")
        who = {"uid": process.uid, "gid": process.gid, "user": user}
        request = {"job": job_id, **who, "priority": group.priority - nice}
        role = str(raw.get("role") or "")
        await self._start(request, Reservation(job_id, name, role, group.devices, nodes=nodes), process)

    def _watch_again(self, job: Job) -> None:
        try:
            process, descriptor = processes.open_process(job.request.pid)
        except BadArgument:
            self._over(job)
            return
        if process.started != job.request.started:
            os.close(descriptor)
            self._over(job)
            return
        self._watch(job, descriptor)

    def _watch(self, job: Job, descriptor: int) -> None:
        self._watched[descriptor] = job
        asyncio.get_running_loop().add_reader(descriptor, self._process_ended, descriptor)

    def _unwatch(self, descriptor: int) -> Job:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
        return self._watched.pop(descriptor)

    def _process_ended(self, descriptor: int) -> None:
        self._over(self._unwatch(descriptor))

    def _over(self, job: Job) -> None:
        task = asyncio.create_task(self._clean_up(job))
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    async def _clean_up(self, job: Job) -> None:
        """End the job with what it left running, as Slurm would."""
        async with self._locks[job.job_id]:
            if self._state.jobs.get(job.job_id) is not job:
                return
            if why := await self._saved_to_kill(job):
                log.warning("job.spared", extra={"job": job.job_id, "reason": why})
            else:
                with contextlib.suppress(OSError):
                    await asyncio.to_thread(_kill_rest, job)
            await self._end(job.job_id)
        self._locks.pop(job.job_id, None)


def _kill_rest(job: Job) -> None:
    """Kill the processes of the job's user that have its id in their environment."""
    for _ in range(_KILL_ROUNDS):
        left = processes.of_jobs([job.job_id])[job.job_id]
        for pid in left:
            with contextlib.suppress(BadArgument, ProcessLookupError, PermissionError):
                process, descriptor = processes.open_process(pid)
                try:
                    if process.uid == job.request.uid:
                        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                finally:
                    os.close(descriptor)
        if not left:
            return


def _user(uid: int) -> str:
    """Return the user's name where it can be part of a job's id, else its number."""
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
    return name if _PLAIN_USER.fullmatch(name) else str(uid)
