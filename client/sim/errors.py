"""What can go wrong on the simulated accelerator."""

from __future__ import annotations

from slurm_interleave.client.core.errors import InterleaveError


class SimError(InterleaveError):
    """The simulated accelerator cannot do what was asked; nothing has changed."""

    status = "FAILED_PRECONDITION"


class OutOfMemory(SimError):
    """The device has not enough free memory."""

    status = "RESOURCE_EXHAUSTED"


class NotResident(SimError):
    """A buffer is not on its device now: the job works outside of its turn."""


class StillWorking(SimError):
    """The job's work on the device did not end before the deadline."""

    status = "DEADLINE_EXCEEDED"


class ChecksumMismatch(SimError):
    """A buffer came back from host memory with other bytes than it left with."""

    status = "DATA_LOSS"
