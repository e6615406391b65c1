"""Section [orchestrator] of interleave.toml. Each field is the documentation of one key."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slurm_interleave.client.core.addresses import check_address, is_loopback
from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.client.core.metrics import check_metrics_address

_DAYS_MAX = 36_500
_GROUPS_MAX = 10_000  # a group has some 150 series


@dataclass(frozen=True)
class OrchestratorConfig:
    """How `interleaved` runs."""

    # Where it listens, host:port; port 0 takes a free one.
    listen: str = "127.0.0.1:50051"
    # SQLAlchemy URL of its memory.
    database: str = "sqlite:////var/lib/interleave/orchestrator.db"
    # Slices that ended more days ago are forgotten, at the start and each day, little by little; 0: none are.
    keep_slices_days: int = 0
    # Unix socket for the slurmctld epilog, which runs as SlurmUser: root and the operators may use it.
    socket: Path = Path("/run/interleave/interleaved.sock")
    # The cluster's name in Slurm.
    cluster: str = "cluster"
    # How callers prove who they are: "munge", or "none", which is allowed on loopback alone.
    auth: str = "munge"
    # Socket of munged; empty: munged's own default.
    munge_socket: str = ""
    # Users who may see and do everything, beside root.
    operators: tuple[str, ...] = ("root", "slurm")
    # Serve the v1alpha1 lock service to callers without credentials; those inside a job have its socket.
    v1alpha1_open: bool = False
    # host:port for Prometheus, by HTTP and without credentials; empty: there are no metrics.
    metrics: str = ""
    # Let others than this host read them.
    metrics_open: bool = False
    # Groups that have series of their own at once; the rest are counted together, as "other".
    metrics_groups: int = 100

    def __post_init__(self) -> None:
        """Refuse what would let strangers in."""
        check_address(self.listen, "[orchestrator] listen", lowest=0)
        check_metrics_address(self.metrics, "orchestrator", open_to_all=self.metrics_open)
        if not self.socket.name:
            raise ConfigError(f"[orchestrator] socket = '{self.socket}': the path of a socket is needed")
        if not 0 <= self.metrics_groups <= _GROUPS_MAX:
            raise ConfigError(
                f"[orchestrator] metrics_groups = {self.metrics_groups}: must be 0 to {_GROUPS_MAX} groups; "
                'with 0 all are "other"'
            )
        if not 0 <= self.keep_slices_days <= _DAYS_MAX:
            raise ConfigError(
                f"[orchestrator] keep_slices_days = {self.keep_slices_days}: must be 0 to {_DAYS_MAX} days; "
                "0 keeps all slices"
            )
        if self.auth not in ("munge", "none"):
            raise ConfigError(
                f"[orchestrator] auth = {self.auth!r} is not known; known are 'munge' and 'none'"
            )
        if self.auth == "none" and not is_loopback(self.listen):
            raise ConfigError(
                f"[orchestrator] listen = {self.listen!r} with auth = 'none' would let anybody on the "
                "network take the devices; set auth = 'munge' or listen on 127.0.0.1"
            )
