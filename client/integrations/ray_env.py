"""A Ray cluster of a job's own, on a node where another job's may run: ports, folder and address.

Source: Ray 2.60.0 `scripts/scripts.py`, `_private/ray_constants.py`. Its defaults are the same for
all clusters of a node; `address="auto"` joins any that runs there, and `ray stop` ends them all.
"""

from __future__ import annotations

import os
import re
import socket
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from slurm_interleave.client.core.errors import InterleaveError

# Below the ports that kernels give out, above the ones that Ray takes by itself.
_BLOCKS = range(20000, 32700, 100)
_HEAD = ("port", "ray-client-server-port")
_NODE = (
    "node-manager-port",
    "object-manager-port",
    "runtime-env-agent-port",
    "dashboard-agent-listen-port",
    "dashboard-agent-grpc-port",
    "metrics-export-port",
)
_WORKERS = 10  # the first port of the block for workers
_TMPDIR_LONGEST = 40  # the names of Unix sockets, of 107 letters at most, begin with it


def ray_environment(
    environ: Mapping[str, str], address: str, free: Callable[[int], bool], make_folder: Callable[[str], str]
) -> dict[str, str]:
    """Return what a job sets before it starts Ray; *free* tells of a port, *make_folder* has a prefix.

    RAY_ADDRESS is for the driver; INTERLEAVE_RAY_HEAD and INTERLEAVE_RAY_NODE are options of `ray start` on
    the first node and on others. Raises `InterleaveError` if there is no block of free ports.
    """
    job = environ.get("INTERLEAVE_JOB_ID") or environ.get("SLURM_JOB_ID") or str(os.getpid())
    base = next((first for first in _order(job) if all(map(free, range(first, first + _WORKERS)))), None)
    if base is None:
        text = f"no {_BLOCKS.step} free ports for Ray from {_BLOCKS.start} to {_BLOCKS.stop} on this node"
        raise InterleaveError(text)
    folder = make_folder(f"ilv-{re.sub(r'[^A-Za-z0-9]', '', job)[:12]}-")
    node = [f"--{name}={base + 2 + number}" for number, name in enumerate(_NODE)]
    node += [f"--min-worker-port={base + _WORKERS}", f"--max-worker-port={base + _BLOCKS.step - 1}"]
    node += [f"--num-{what}={count}" for what, count in _resources(environ)]
    head = [f"--{name}={base + number}" for number, name in enumerate(_HEAD)]
    head = ["--head", f"--node-ip-address={address}", *head, "--include-dashboard=false"]
    return {
        "RAY_ADDRESS": f"{address}:{base}",
        "RAY_TMPDIR": folder,
        "INTERLEAVE_RAY_HEAD": " ".join([*head, *node, f"--temp-dir={folder}", "--disable-usage-stats"]),
        "INTERLEAVE_RAY_NODE": " ".join([f"--address={address}:{base}", *node]),
    }


def own_address() -> str:
    """Return the address of this node that others reach; 127.0.0.1 where there is no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; the address is one for documentation
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def is_free(port: int) -> bool:
    """Tell whether nobody listens on *port* of this node."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def make_folder(prefix: str) -> str:
    """Make a folder with a short name for this user alone."""
    parent = tempfile.gettempdir()
    return tempfile.mkdtemp(prefix=prefix, dir=parent if len(parent) <= _TMPDIR_LONGEST else Path("/tmp"))  # noqa: S108


def _order(job: str) -> Iterator[int]:
    """Return the first ports of all blocks, beginning with the job's own: jobs that follow have others."""
    number = int(job) if job.isdigit() else zlib.crc32(job.encode())
    for step in range(len(_BLOCKS)):
        yield _BLOCKS[(number + step) % len(_BLOCKS)]


def _resources(environ: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Return what the job has here: each of two clusters would take the whole node for its own."""
    yield "cpus", int(environ.get("SLURM_CPUS_ON_NODE") or len(os.sched_getaffinity(0)))
    devices = environ.get("CUDA_VISIBLE_DEVICES")
    if devices is not None:
        yield "gpus", len([name for name in devices.split(",") if name])
