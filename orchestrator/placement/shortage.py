"""Which waiting jobs ask for more than the nodes have, however empty these are. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from slurm_interleave.orchestrator.placement.plan import Lane, Node, Pending

_Wanted = tuple[int, int, frozenset[str], frozenset[str]]


def shortages(pending: Iterable[Pending], nodes: Sequence[Node], lanes: Sequence[Lane]) -> Mapping[str, str]:
    """Return why no place will be free for it, by the job; *nodes*: those that take jobs now."""

    # Nearly all jobs ask for one of a few sizes, on any node.
    @cache
    def why(wanted: _Wanted) -> str:
        count, devices, avoid, only = wanted
        sizes = [
            {
                node.name: len(node.devices)
                for node in nodes
                if lane.on(node.name) and node.name not in avoid and (not only or node.name in only)
            }
            for lane in lanes
            if not lane.devices or devices <= lane.devices
        ]
        enough = max((sum(size >= devices for size in each.values()) for each in sizes), default=0)
        if enough >= count:
            return ""
        most = max((size for each in sizes for size in each.values()), default=0)
        asked = f"{count} node{'s' * (count != 1)} with {devices} device{'s' * (devices != 1)} each"
        return (
            f"it asks for {asked}, and of the nodes that it may have and that take jobs now {enough} would "
            f"do; none of them has more than {most}"
        )

    found = {job.job_id: why((job.nodes, job.devices, job.avoid, job.only)) for job in pending}
    return {job_id: text for job_id, text in found.items() if text}
