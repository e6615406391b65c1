"""Which jobs wait for a place: values in, values out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from slurm_interleave.orchestrator.pairing.advice import Sharer
from slurm_interleave.orchestrator.pairing.profile import workload_named
from slurm_interleave.orchestrator.placement.admin_comment import RELEASED, AdminComment
from slurm_interleave.orchestrator.placement.plan import Pending, Placement
from slurm_interleave.orchestrator.placement.squeue import SlurmJob, task_numbers
from slurm_interleave.orchestrator.placement.traits import Traits, Wish

Jobs = Mapping[str, tuple[SlurmJob, AdminComment]]
NOTHING_KNOWN: Mapping[str, Traits] = {}
# How many tasks of one array are looked at in a round; the next one comes at once.
TASKS_AT_ONCE = 100


def waiting(
    jobs: Jobs, book: Mapping[str, Placement], nodes: Mapping[str, Traits] = NOTHING_KNOWN
) -> list[Pending]:
    """Return those of *jobs* that wait for a place and have none in the *book*, in the order of submission.

    *nodes* is all that Slurm has, where one of them asks for more than any GPU.

    A task of an array that Slurm has not made a job of its own yet goes by the name that scontrol has for it,
    as in 17_3: it has no id to go into the book with.
    """
    placed = Counter(job.array for job_id, (job, _) in jobs.items() if job_id in book)
    taken: defaultdict[str, frozenset[str]] = defaultdict(frozenset)
    for job_id, (job, _) in jobs.items():
        if job_id in book and job.heterogeneous:
            taken[job.heterogeneous] |= set(book[job_id].nodes)
    return [
        Pending(
            name,
            comment.group,
            comment.role,
            comment.nodes,
            comment.devices,
            account=job.account,
            together=job.heterogeneous,
            avoid=taken[job.heterogeneous].union(_unwanted(job), unmet),
            only=_wanted(job, comment.nodes),
            unmet=f"no node has {wish}" if unmet and len(unmet) == len(nodes) else "",
        )
        for job, comment in sorted(jobs.values(), key=_turn)
        if job.held and comment.state != RELEASED and not job.dependency and job.job_id not in book
        for wish in [wish_of(job, comment)]
        for unmet in [wish.unmet(nodes)]
        for name in _names(job, placed)
    ]


def wish_of(job: SlurmJob, comment: AdminComment) -> Wish:
    """Return what the user of a job wants of its nodes."""
    return Wish(comment.gpu_type, job.constraint)


def sharers(jobs: Jobs, now: float) -> dict[str, Sharer]:
    """Return each job with its workload, as its turns will be learned. *now*: seconds since 1970."""
    return {
        job_id: Sharer(
            job_id,
            workload_named(
                comment.profile,
                job.account,
                job.title or job_id,
                comment.role,
                comment.nodes,
                comment.devices,
            ),
            job.account,
            comment.role,
            comment.nodes,
            comment.devices,
            None if comment.max_slowdown is None else comment.max_slowdown / 100,
            comment.gpu_type,
            job.hours_left(now),
        )
        for job_id, (job, comment) in jobs.items()
    }


def _wanted(job: SlurmJob, nodes: int) -> frozenset[str]:
    """Return the nodes that its user named, if they are all that it needs; empty: any."""
    named = job.pinned or ()
    pinned_by_us = bool(job.gres)
    return frozenset(named) if len(named) == nodes and not pinned_by_us else frozenset()


def _unwanted(job: SlurmJob) -> tuple[str, ...]:
    """Return the nodes that its user excluded; a first component is pinned by what it excludes."""
    return () if job.leads and job.gres else job.excluded


def _turn(one: tuple[SlurmJob, AdminComment]) -> tuple[int, str, bool, int]:
    """Return when a job was submitted; tasks that are jobs already come before the rest of their array."""
    job = one[0]
    root = job.array or job.job_id
    return len(root), root, job.task is None, job.task or 0


def _names(job: SlurmJob, placed: Counter[str]) -> Iterator[str]:
    """Yield what to call the job, or those of its array's tasks that may come beside the *placed* ones."""
    room = job.tasks_at_once - placed[job.array] if job.tasks_at_once else TASKS_AT_ONCE
    if not job.array:
        names = [job.job_id]
    elif job.task is not None:
        names = [job.job_id][:room]
    else:
        names = [f"{job.array}_{number}" for number in task_numbers(job.tasks, min(room, TASKS_AT_ONCE))]
    placed[job.array] += len(names)
    yield from names


def array_of(name: str) -> str:
    """Return the id of the array whose task *name* is, or the job's own."""
    return name.partition("_")[0]
