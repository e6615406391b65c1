"""The jobs' slices, from the orchestrator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from slurm_interleave.client.connect import Call, ClientConfig, credentials, open_channel
from slurm_interleave.client.core.config import load_section
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc


def read_slices(config: Path, job_ids: Sequence[str]) -> list[pb.Slice]:
    """Return all slices of *job_ids*; raises `grpc.RpcError` if the orchestrator does not answer."""
    client = load_section(ClientConfig, "client", config)
    with open_channel(client.orchestrator) as channel:
        request = pb.ListSlicesRequest(job_ids=job_ids)
        who = credentials(Call("Interleave/ListSlices", request), client.auth, client.munge_socket)
        pages = rpc.InterleaveStub(channel).ListSlices(request, metadata=who, timeout=10)
        return [row for page in pages for row in page.slices]
