"""Nodes, what jobs want of them, and what others have."""

from __future__ import annotations

from slurm_interleave.orchestrator.placement.plan import Lane, Node, Pending, Placement

TOKEN = (Lane("ilv", 2),)
LANES = (Lane("ilva", 1), Lane("ilvb", 1))
N1, N2, N3 = (Node(name, (0, 1)) for name in ("n1", "n2", "n3"))


def want(job_id: str, group: str = "demo", role: str = "", nodes: int = 1, devices: int = 1) -> Pending:
    return Pending(job_id, group, role, nodes, devices)


def have(
    job_id: str, devices: tuple[int, ...], lane: str, group: str = "demo", nodes: tuple[str, ...] = ("n1",)
) -> Placement:
    return Placement(job_id, group, "", nodes, devices, lane)
