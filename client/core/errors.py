"""The tree of errors. The class is the contract, the text is for people.

`status` is the gRPC status code that a service answers with; the class name travels beside it in the
trailing metadata `interleave-error`, so that a client raises the same class again.
"""

from __future__ import annotations

from typing import ClassVar


class InterleaveError(Exception):
    """Any error of slurm-interleave."""

    status: ClassVar[str] = "INTERNAL"


class BadName(InterleaveError):
    """A group, role, job or phase name that is not allowed."""

    status = "INVALID_ARGUMENT"


class BadArgument(InterleaveError):
    """A value, on a command line or in a call, that cannot be used."""

    status = "INVALID_ARGUMENT"


class ConfigError(InterleaveError):
    """A configuration file, variable or flag that cannot be used."""

    status = "FAILED_PRECONDITION"


class UnknownGroup(InterleaveError):
    """No such group, or none that the caller may see."""

    status = "NOT_FOUND"


class NotRegistered(InterleaveError):
    """The job is not known: its node's agent did not register it at the job's start."""

    status = "NOT_FOUND"


class NotTheHolder(InterleaveError):
    """The lock is held by another job."""

    status = "PERMISSION_DENIED"


class Denied(InterleaveError):
    """The caller did not prove that he may do this."""

    status = "PERMISSION_DENIED"


class NotAuthenticated(InterleaveError):
    """The caller did not prove who he is."""

    status = "UNAUTHENTICATED"


class StaleLease(InterleaveError):
    """The caller acted on a lease that has ended or that a later grant has replaced."""

    status = "ABORTED"


class Deadlock(InterleaveError):
    """The acquire would wait for a job that waits, itself or through others, for this one."""

    status = "FAILED_PRECONDITION"


class JobFaulted(InterleaveError):
    """The job's device state could not be saved or restored; the text says why."""

    status = "FAILED_PRECONDITION"


class JobEnded(InterleaveError):
    """The job ended while it waited."""

    status = "CANCELLED"


class NotInTime(InterleaveError):
    """The devices were not granted before the caller's deadline."""

    status = "DEADLINE_EXCEEDED"


class Replaced(InterleaveError):
    """Another orchestrator has taken over the database; this one must stop."""

    status = "ABORTED"


class DatabaseFailed(InterleaveError):
    """The orchestrator's database did not do what was asked; the text says why."""

    status = "UNAVAILABLE"


class Busy(InterleaveError):
    """An operation on the same job is under way."""

    status = "ABORTED"


class TooMany(InterleaveError):
    """Somebody has as many calls under way as one may have."""

    status = "RESOURCE_EXHAUSTED"


class WrongState(InterleaveError):
    """What was asked for makes no sense in the state that the job's context is in."""

    status = "FAILED_PRECONDITION"


class UnknownOperation(InterleaveError):
    """No snapshot or restore of this id is known on the node."""

    status = "NOT_FOUND"


class SlurmFailed(InterleaveError):
    """One of Slurm's commands failed, gave no answer in time, or answered in an unknown form."""

    status = "FAILED_PRECONDITION"


def by_name(name: str) -> type[InterleaveError]:
    """Return the error class called *name*, or `InterleaveError` where this release has none."""
    found = globals().get(name)
    if isinstance(found, type) and issubclass(found, InterleaveError):
        return found
    return InterleaveError
