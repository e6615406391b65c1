"""The servers of the agent: one unix socket per job, open to its user alone, and TCP if asked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio

from slurm_interleave.client.answers import ErrorsToStatus
from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2_grpc as v1_rpc
from slurm_interleave.node_agent.job_service import JobService
from slurm_interleave.node_agent.snapshot_service import SnapshotService

# Else a server hangs up on a client that pings as ours do while a stream has nothing to say.
_OPTIONS = (("grpc.so_reuseport", 0), ("grpc.http2.min_ping_interval_without_data_ms", 5_000))
CONNECTIONS_MAX = 256  # to one job's socket: a job must not use up the files that the agent may open
CALLS_MAX = 2048  # under way on one job's socket: nor its memory, each waits with its message
_JOB_OPTIONS = (*_OPTIONS, ("grpc.max_allowed_incoming_connections", CONNECTIONS_MAX))
_STOP_S = 0.2


async def serve(
    address: str,
    service: SnapshotService,
    backends: Sequence[str],
    handlers: Sequence[Any] = (),
    options: Sequence[tuple[str, int]] = _OPTIONS,
    own: JobService | None = None,
    calls: int | None = None,
) -> tuple[grpc.aio.Server, int]:
    """Serve *service*, the health service, *handlers* and *own*; return the server and its port.

    Of calls beyond *calls* that are under way each is refused, with RESOURCE_EXHAUSTED.
    Raises `ConfigError` if *address* cannot be used.
    """
    server = grpc.aio.server(options=options, maximum_concurrent_rpcs=calls)
    ours = ErrorsToStatus(server)
    v1_rpc.add_SnapshotAgentServiceServicer_to_server(service, ours)
    health = health_aio.HealthServicer()
    for name in ("", *backends):
        await health.set(name, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    ours.add_generic_rpc_handlers(handlers)
    if own is not None:
        rpc.add_JobAgentServicer_to_server(own, ours)
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise ConfigError(f"{address} cannot be served: {error}") from None
    await server.start()
    return server, port


async def serve_job(
    folder: Path,
    uid: int,
    gid: int,
    service: SnapshotService,
    backends: Sequence[str],
    handlers: Sequence[Any],
    own: JobService,
) -> grpc.aio.Server:
    """Serve one job at `socket` in *folder*, for *uid* alone. Raises `ConfigError`."""
    path = folder / "socket"
    try:
        _clear(folder, path)
        server, _ = await serve(f"unix:{path}", service, backends, handlers, _JOB_OPTIONS, own, CALLS_MAX)
        _hand_over(folder, path, uid, gid)
    except OSError as error:
        raise ConfigError(f"{path}: the job's socket cannot be made: {error}") from error
    return server


def _clear(folder: Path, path: Path) -> None:
    """Close *folder* until the socket has its owner: between bind and chown it would be open by the umask."""
    path.unlink(missing_ok=True)
    folder.chmod(0o700)


def _hand_over(folder: Path, path: Path, uid: int, gid: int) -> None:
    path.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(path, uid, gid)
    folder.chmod(0o711)


async def stop(server: grpc.aio.Server) -> None:
    """Stop *server*; calls under way are ended."""
    await server.stop(_STOP_S)
