"""Inference servers that hold a job's device state, for the node's agent to suspend them over HTTP."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import grpc

from slurm_interleave.client.connect import domain_error, open_channel
from slurm_interleave.client.core.errors import BadArgument, NotRegistered
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc

_LIMIT_S = 30.0


def register_endpoints(
    app: str, urls: Sequence[str], *, discard: bool = False, environ: Mapping[str, str] = os.environ
) -> bool:
    """Tell this node's agent which servers hold the job's device state here; False outside of such a job.

    *app* is `vllm` or `sglang`; the URLs are of this node, as http://localhost:8000, and take the place of
    those that were told before. *discard*: they suspend without keeping the weights, which are pushed again
    before they are used. Raises `BadArgument` for what the agent cannot use.
    """
    address, job = environ.get("INTERLEAVE_SOCKET", ""), environ.get("INTERLEAVE_JOB_ID", "")
    if not address or not job:
        return False
    request = pb.RegisterEndpointsRequest(app=app, urls=urls, discard=discard)
    with open_channel(address) as channel:
        try:
            rpc.JobAgentStub(channel).RegisterEndpoints(request, timeout=_LIMIT_S, wait_for_ready=True)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                text = f"job {job}: the node's agent did not answer within {_LIMIT_S:g} s at {address}"
                raise NotRegistered(text) from None
            raise domain_error(error, address) from None
    return True


def parse_endpoints(text: str) -> tuple[str, list[str]]:
    """Return application and URLs of INTERLEAVE_ENDPOINTS, as in `vllm http://localhost:8000`.

    Raises `BadArgument`.
    """
    app, *urls = text.replace(",", " ").split() or [""]
    if not urls:
        raise BadArgument(
            f"INTERLEAVE_ENDPOINTS={text!r}: an application and its URLs are needed, "
            "as in: vllm http://localhost:8000"
        )
    return app, urls
