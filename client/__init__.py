"""What runs in the user's job and on login nodes."""

from slurm_interleave.client.aio import AsyncInterleaver
from slurm_interleave.client.ask import Lease, Stop, Stopped
from slurm_interleave.client.connect import Unreachable
from slurm_interleave.client.core.errors import (
    Deadlock,
    InterleaveError,
    JobFaulted,
    NotRegistered,
    StaleLease,
)
from slurm_interleave.client.interleaver import Interleaver
from slurm_interleave.client.job_ranks import JobRanks
from slurm_interleave.client.notices import Notice

__all__ = [
    "AsyncInterleaver",
    "Deadlock",
    "InterleaveError",
    "Interleaver",
    "JobFaulted",
    "JobRanks",
    "Lease",
    "NotRegistered",
    "Notice",
    "StaleLease",
    "Stop",
    "Stopped",
    "Unreachable",
]
