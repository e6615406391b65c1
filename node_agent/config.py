"""Section [agent] of interleave.toml. Each field is the documentation of one key."""

from __future__ import annotations

import math
import socket
from dataclasses import dataclass, replace
from pathlib import Path

from slurm_interleave.client.core.addresses import check_address, is_loopback
from slurm_interleave.client.core.config import load_section
from slurm_interleave.client.core.errors import BadArgument, ConfigError
from slurm_interleave.client.core.metrics import check_metrics_address
from slurm_interleave.client.core.values import parse_word
from slurm_interleave.client.sim.settings import SimConfig

_BACKENDS = ("sim", "noop", "cuda")
_SOCKET_PATH_MAX = 107  # sun_path of unix(7), without the final zero
_LONGEST_JOB_ID = "1234567890"


@dataclass(frozen=True)
class AgentConfig:
    """How `interleave-agent` runs. In paths, %n is replaced by the node's name."""

    # The node's name in Slurm; empty: the host's name up to the first dot.
    node: str = ""
    # Where the orchestrator listens, host:port.
    orchestrator: str = "127.0.0.1:50051"
    # Folder of the agent's socket and of the jobs' files; may be emptied at boot.
    run_dir: Path = Path("/run/interleave")
    # Folder of what the agent must remember across its restarts.
    state_dir: Path = Path("/var/lib/interleave")
    # What moves device state: "sim" (simulated devices), "noop" (nothing is moved, for tests of the rest), or
    # "cuda" (NVIDIA's driver, see docs/cuda.md and [cuda]).
    backend: str = "sim"
    # host:port on loopback for the v1alpha1 agent service; empty: only on the jobs' own sockets.
    listen: str = ""
    # How the agent proves who it is: "munge", or "none" where the orchestrator asks for nothing.
    auth: str = "munge"
    # Socket of munged; empty: munged's own default.
    munge_socket: str = ""
    # Seconds that one snapshot or restore may take.
    operation_timeout_s: float = 120.0
    # Host memory for the saved state of all jobs of this node, in GiB; 0: as much as there is.
    host_memory_gib: float = 0.0
    # Folder on a fast local disk for saved state that does not fit in host memory, of the backends that keep
    # it themselves (sim) and of applications that can save there (torch); empty: such a snapshot is refused.
    spill_dir: str = ""
    # Seconds between looks at the processes of the jobs.
    watch_s: float = 5.0
    # host:port for Prometheus, by HTTP and without credentials; empty: there are no metrics.
    metrics: str = ""
    # Let others than this host read them.
    metrics_open: bool = False

    # Folder for the processes of jobs that `interleave drain` saves, on a file system that all nodes share;
    # empty: none are saved.
    image_dir: str = ""
    # The program that saves processes, criu 4.1 or later: a name on PATH, or a path.
    criu: str = "criu"
    # What is done with a process of an interleaved job that uses a device which the job does not hold: "warn"
    # (said in the log and by `interleave status`), "save" (its job's device state is saved) or "kill". A
    # process of a job that did not ask for interleaving is never touched.
    trespass: str = "warn"

    def __post_init__(self) -> None:
        """Refuse what cannot work, with what to write instead."""
        if self.backend not in _BACKENDS:
            raise ConfigError(
                f"[agent] backend = {self.backend!r} is not known; known are {', '.join(_BACKENDS)}"
            )
        if self.trespass not in ("warn", "save", "kill"):
            raise ConfigError(
                f"[agent] trespass = {self.trespass!r} is not known; known are 'warn', 'save' and 'kill'"
            )
        if self.auth not in ("munge", "none"):
            raise ConfigError(f"[agent] auth = {self.auth!r} is not known; known are 'munge' and 'none'")
        self._check_numbers()
        check_metrics_address(self.metrics, "agent", open_to_all=self.metrics_open)
        check_address(self.orchestrator, "[agent] orchestrator")
        if self.listen:
            check_address(self.listen, "[agent] listen", lowest=0)
        if self.listen and not is_loopback(self.listen):
            raise ConfigError(
                f"[agent] listen = {self.listen!r}: callers of the v1alpha1 service do not say who they are, "
                "so it is served on loopback alone, as in 127.0.0.1:9001"
            )

    def _check_numbers(self) -> None:
        for key in ("operation_timeout_s", "watch_s"):
            seconds = getattr(self, key)
            if not (math.isfinite(seconds) and seconds > 0):
                raise ConfigError(f"[agent] {key} = {seconds}: must be more than 0 seconds, and finite")
        if not (math.isfinite(self.host_memory_gib) and self.host_memory_gib >= 0):
            raise ConfigError(
                f"[agent] host_memory_gib = {self.host_memory_gib}: must be 0 (no limit) or more, and finite"
            )

    def job_folder(self, job: str) -> Path:
        """Return the folder of one job's environment file and socket."""
        return self.run_dir / "jobs" / job

    @property
    def register_socket(self) -> Path:
        """The socket at which users register jobs without Slurm."""
        return self.run_dir / "register.sock"

    @property
    def hook_socket(self) -> Path:
        """The socket that prolog and epilog talk to."""
        return self.run_dir / "agent.sock"


def load(path: Path | None, flags: dict[str, object]) -> tuple[AgentConfig, SimConfig]:
    """Return sections [agent] and [sim], with the node's name filled in. Raises `ConfigError`."""
    agent = load_section(AgentConfig, "agent", path, flags)
    sim = load_section(SimConfig, "sim", path)
    node = _node(agent.node or socket.gethostname().partition(".")[0])
    agent = replace(
        agent,
        node=node,
        run_dir=_for_node(agent.run_dir, node),
        state_dir=_for_node(agent.state_dir, node),
        spill_dir=agent.spill_dir.replace("%n", node),
    )
    longest = str(agent.job_folder(_LONGEST_JOB_ID) / "socket")
    if len(longest.encode()) > _SOCKET_PATH_MAX:
        raise ConfigError(
            f"[agent] run_dir = {agent.run_dir}: sockets below it, as {longest}, would be longer than "
            f"{_SOCKET_PATH_MAX} bytes; choose a shorter one"
        )
    return agent, replace(sim, directory=_for_node(sim.directory, node))


def _node(name: str) -> str:
    """Return *name*, which is part of paths, and which the orchestrator is to take. Raises `ConfigError`."""
    try:
        return parse_word(name, "[agent] node:")
    except BadArgument as error:
        raise ConfigError(str(error)) from None


def _for_node(path: Path, node: str) -> Path:
    return Path(str(path).replace("%n", node))
