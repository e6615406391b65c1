"""The same without Slurm and without root: orchestrator and agent here, jobs as local processes."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lab import interleave_conf
from lab.base import Lab
from lab.interleave_conf import SimSettings
from lab.processes import LabError, free_ports, tail
from lab.scratch import Scratch

_NODE = "local"
_HOOK_S = 30.0


class LocalLab(Lab):
    """One node without Slurm. What prolog and epilog do on a cluster, `submit` and a job's end do here."""

    def __init__(self, scratch: Scratch) -> None:
        super().__init__(scratch, scratch.environment())
        self._jobs: dict[str, subprocess.Popen[bytes]] = {}
        self._ends: dict[str, threading.Thread] = {}

    @classmethod
    @contextlib.contextmanager
    def start(
        cls,
        root: Path | None = None,
        *,
        devices: int = 2,
        sim: SimSettings | None = None,
        config: Mapping[str, Mapping[str, Any]] | None = None,
        nodes: Sequence[str] = (_NODE,),
    ) -> Iterator[LocalLab]:
        """Start `interleaved` and an agent a node under *root* (default: a temporary one).

        All ends with the context. *config* is added to the tables of its configuration. Raises `LabError`
        with the end of the log of what did not start.
        """
        with Scratch(root) as scratch:
            lab = cls(scratch)
            tables = interleave_conf.sections(scratch, free_ports(1)[0], devices, sim or SimSettings())
            tables["client"]["agent_socket"] = str(scratch.root / "run" / _NODE / "register.sock")
            interleave_conf.write(lab.config, tables, config or {})
            try:
                lab.launch(interleave_conf.daemons(scratch, nodes, lab.env))
                yield lab
            finally:
                lab.cancel(*lab._jobs)
                lab.stop_all()

    def submit(
        self,
        command: Sequence[str],
        *,
        group: str = "",
        devices: Sequence[int] = (0,),
        role: str = "",
        name: str = "job",
        env: Mapping[str, str] | None = None,
        again: str = "",
    ) -> str:
        """Start *command* as a job on *devices*, in *group* (empty: not interleaved); return the job's id.

        *again* is the id of an earlier job, which starts again as a requeued one does. Raises `LabError` if
        the agent does not register it.
        """
        job_id = again or f"{name}-{len(self._jobs) + 1}"
        variables = {**self.env, **(env or {}), "INTERLEAVE_SIM_DIR": f"{self.scratch.sim}/{_NODE}"}
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, devices))
        if group:
            variables |= self._register(job_id, group, role, devices)
        with self._output_path(job_id).open("wb") as out:
            process = subprocess.Popen(
                list(command),
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self.root,
                start_new_session=True,
            )
        self._jobs[job_id] = process
        self._ends[job_id] = threading.Thread(target=self._finish, args=(job_id, process), daemon=True)
        self._ends[job_id].start()
        return job_id

    def wait(self, job_id: str, timeout_s: float = 120.0) -> int:
        """Return the job's exit code once it and its epilog are over. Raises `LabError` after *timeout_s*."""
        self._ends[job_id].join(timeout_s)
        if self._ends[job_id].is_alive():
            raise LabError(f"job {job_id} did not end within {timeout_s:g} s\n{self.output(job_id)}")
        return self._jobs[job_id].wait()

    def running(self, job_id: str) -> bool:
        """True while the job's process lives."""
        return self._jobs[job_id].poll() is None

    def cancel(self, *job_ids: str) -> None:
        """Kill the jobs with all that they started, and wait for their epilogs."""
        for job_id in job_ids:
            if self.running(job_id):
                os.killpg(self._jobs[job_id].pid, signal.SIGKILL)
        for job_id in job_ids:
            self._ends[job_id].join(_HOOK_S)

    def output(self, job_id: str, lines: int = 200) -> str:
        """Return the end of what the job wrote."""
        return tail(self._output_path(job_id), lines)

    def _output_path(self, job_id: str) -> Path:
        return self.root / "out" / f"{job_id}.out"

    def _register(self, job_id: str, group: str, role: str, devices: Sequence[int]) -> dict[str, str]:
        who = {
            "uid": os.getuid(),
            "gid": os.getgid(),
            "user": getpass.getuser(),
            "account": "",
            "partition": "",
        }
        what = {"group": group, "role": role, "devices": list(devices)}
        reply = self._hook(verb="job-start", job=job_id, **who, **what)
        if not reply.get("ok"):
            raise LabError(f"job {job_id} was not registered: {reply.get('error')}")
        lines = Path(reply["environment"]).read_text().splitlines()
        return dict(line.partition("=")[::2] for line in lines)

    def _finish(self, job_id: str, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # An agent that is away learns of the end by itself: it watches the job's processes.
        with contextlib.suppress(LabError):
            self._hook(verb="job-end", job=job_id)

    def _hook(self, **request: object) -> dict[str, Any]:
        """Send one request to the agent and return its reply. Raises `LabError`."""
        path = self.root / "run" / _NODE / "agent.sock"
        try:
            with socket.socket(socket.AF_UNIX) as link:
                link.settimeout(_HOOK_S)
                link.connect(str(path))
                link.sendall(json.dumps(request).encode() + b"\n")
                reply = link.makefile("rb").readline()
            answer: dict[str, Any] = json.loads(reply)
        except (OSError, ValueError) as error:
            raise LabError(f"{path}: {request['verb']} got no answer: {error}") from error
        return answer
