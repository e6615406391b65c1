"""What a rank says when it comes to a meeting, as the one who keeps the meetings reads it."""

from __future__ import annotations

from slurm_interleave.client.core.meetings import Arrival
from slurm_interleave.client.core.names import parse_job_id
from slurm_interleave.client.core.values import parse_reason, parse_word
from slurm_interleave.client.wire import interleave_v1_pb2 as pb


def arrival(request: pb.MeetRequest) -> Arrival:
    """Return what *request* says. Raises `BadName`, `BadArgument`."""
    return Arrival(
        parse_job_id(request.job_id),
        parse_word(request.place, "place"),
        request.round,
        request.rank,
        request.ranks,
        parse_reason(request.word),
        parse_reason(request.before),
    )
