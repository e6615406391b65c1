"""Why placement puts jobs together, or not."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

from slurm_interleave.client.connect import Call
from slurm_interleave.client.core.errors import WrongState
from slurm_interleave.client.core.names import parse_job_id
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc
from slurm_interleave.orchestrator.auth import Caller, Gate
from slurm_interleave.orchestrator.placement.explain import Explanation, Seen
from slurm_interleave.orchestrator.placement.helper import PlacementHelper
from slurm_interleave.orchestrator.shares import Shares


class PairingService(rpc.PairingServicer):
    """Answers one question at a time, since each rates many groups."""

    def __init__(self, gate: Gate, helper: PlacementHelper | None) -> None:
        """*helper* places jobs here; None: nobody does."""
        self._gate = gate
        self._helper = helper
        self._shares = Shares(1, "question why jobs are paired")
        self._answering = asyncio.Lock()

    async def Explain(self, request: pb.ExplainRequest, context: Any) -> pb.ExplainReply:
        """Say why jobs are together, or not."""
        metadata = dict(context.invocation_metadata())
        caller = await self._gate.identify(metadata, Call("Pairing/Explain", request))
        job_id = parse_job_id(request.job_id) if request.job_id else ""
        # Who goes away does not get the next one answered beside his own.
        return await asyncio.shield(self._answer(caller, job_id))

    async def _answer(self, caller: Caller, job_id: str) -> pb.ExplainReply:
        share = nullcontext() if caller.operator else self._shares.one_of(f"uid {caller.uid}")
        with share:
            async with self._answering:
                seen = self._seen()
                lines = await asyncio.to_thread(_explained, seen, caller, job_id)
        return pb.ExplainReply(lines=lines, at=seen.at)

    def _seen(self) -> Seen:
        if self._helper is None:
            raise WrongState(
                "interleaved places no jobs here ([placement] enabled = false), so it pairs none; to rate "
                "jobs all the same, give their numbers with --jobs FILE (interleave profile export has those "
                "of their workloads)"
            )
        if self._helper.seen is None:
            raise WrongState(
                "interleaved has not looked at Slurm's queue yet; try again in some seconds, and if that "
                "stays so, its log says what keeps it (slurm.unreachable)"
            )
        return self._helper.seen


def _explained(seen: Seen, caller: Caller, job_id: str) -> list[str]:
    explanation = Explanation(seen, None if caller.operator else seen.of_user(caller.uid))
    return list(explanation.of_job(job_id) if job_id else explanation.of_all())
