"""What runs in the user's job and on login nodes."""

from slurm_interleave.client.core.errors import InterleaveError, JobFaulted, NotRegistered, StaleLease
from slurm_interleave.client.interleaver import Interleaver
from slurm_interleave.client.session import Lease

__all__ = ["InterleaveError", "Interleaver", "JobFaulted", "Lease", "NotRegistered", "StaleLease"]
