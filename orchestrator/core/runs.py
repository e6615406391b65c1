"""Which run of its job an attempt belongs to, which of two runs came later, and the member that one makes.

A job that Slurm puts back into its queue runs again under its id, maybe elsewhere, and an agent may not have
heard of the end of the run before. Slurm's count of restarts tells two runs apart, and so do different nodes;
not which came later, since Slurm may give an id again. That is told by the clocks of the nodes, which must
differ by less than Slurm waits before it starts a job again: about two minutes.
"""

from __future__ import annotations

from collections.abc import Collection

from slurm_interleave.orchestrator.core.events import Registration
from slurm_interleave.sql.rows import Member, Part


def is_another_run(parts: Collection[Part], nodes: Collection[str], job: Registration) -> bool:
    """Tell whether *job* is of another run than *parts*, which run on *nodes*; empty: nobody knows where."""
    if any(are_two_runs(part, job) for part in parts):
        return True
    return bool(nodes and job.nodes) and set(nodes) != set(job.nodes)


def are_two_runs(part: Part, job: Registration) -> bool:
    """Tell whether Slurm has put the job back between the two, as far as both say."""
    return part.restarts != job.restarts and min(part.restarts, job.restarts) >= 0


def came_later(parts: Collection[Part], job: Registration) -> bool | None:
    """Tell whether *job*, of another run than *parts*, began after them; None: the clocks do not tell."""
    began = [part.started for part in parts]
    if not (began and all(began) and job.started) or min(began) <= job.started <= max(began):
        return None
    return job.started > max(began)


def member_of(job: Registration) -> Member:
    """Return the member that a run of *job* makes."""
    return Member(
        job.job_id,
        job.group,
        role=job.role,
        uid=job.uid,
        user=job.user,
        account=job.account,
        partition=job.partition,
        name=job.name,
        backend=job.backend,
        nodes=job.nodes,
        profile=job.profile,
        max_slowdown=job.max_slowdown,
    )
