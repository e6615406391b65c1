"""The states that more than one part talks about; each member carries its meaning."""

from __future__ import annotations

from enum import Enum


class Context(str, Enum):
    """A job's device state on one node."""

    NONE = "none"  # the job has nothing on a device, as far as anybody knows
    RESIDENT = "resident"  # it may have state on its devices
    SAVING = "saving"  # a snapshot is under way
    SAVED = "saved"  # its state is in host memory, its devices are free
    RESTORING = "restoring"  # a restore is under way
    FAULTED = "faulted"  # its state is neither usable nor known to be off the device
    UNKNOWN = "unknown"  # the node's agent is away in the middle of an operation


class Attendance(str, Enum):
    """Whether processes that take turns for a job live on a node."""

    UNKNOWN = ""  # none has said that it does
    PRESENT = "present"  # one of them lives, or another process of the job has state on a device
    GONE = "gone"  # none of them lives, though the job may


class SliceState(str, Enum):
    """How a turn stands or ended; what `sinterleave` shows as State."""

    WAITING = "WAITING"  # in the queue
    RUNNING = "RUNNING"  # holds its devices now
    YIELDED = "YIELDED"  # ended by the job's own yield
    PAUSED = "PAUSED"  # the same at a safe point: the phase goes on with the job's next turn
    JOB_ENDED = "JOB_ENDED"  # the job ended while it held the devices
    REVOKED = "REVOKED"  # taken back by an operator or a rule
    ABANDONED = "ABANDONED"  # the processes that held the devices were gone, while their job lived
    FAULTED = "FAULTED"  # the device state was lost


YIELDS = frozenset({SliceState.YIELDED, SliceState.PAUSED})

# What Slurm calls a job that has ended, by squeue(1); each user of it adds what is over for him too.
SLURM_ENDED = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "TIMEOUT",
    }
)
