"""A helper with its surroundings in memory."""

from __future__ import annotations

from slurm_interleave.orchestrator.pairing.advice import Advice
from slurm_interleave.orchestrator.placement.config import PlacementConfig
from slurm_interleave.orchestrator.placement.helper import PlacementHelper
from slurm_interleave.orchestrator.placement.plan import Node
from tests.placement.fakes import FakeBook, FakeFleet, FakeMembers, FakeSlurm, Steps

CONFIG = PlacementConfig(enabled=True, mode="lane", gres=("ilva", "ilvb"), poll_s=60)
N1, N2 = Node("n1", (0, 1)), Node("n2", (0, 1))


class World:
    """What outlives the daemon, and a daemon that can be started again."""

    def __init__(self, *nodes: Node, config: PlacementConfig = CONFIG, advice: Advice | None = None) -> None:
        self.steps, self.config, self.advice = Steps(), config, advice or Advice()
        nodes = nodes or (N1, N2)
        self.slurm = FakeSlurm(self.steps, [node.name for node in nodes])
        self.book, self.fleet = FakeBook(self.steps), FakeFleet(*nodes, steps=self.steps)
        self.members = FakeMembers()
        self.over: list[str] = []  # jobs that are to be accounted for
        self.now = 0.0
        self.helper = self.new_helper()

    def new_helper(self) -> PlacementHelper:
        return PlacementHelper(
            self.slurm,
            self.book,
            self.fleet,
            self.members,
            self.config,
            clock=lambda: self.now,
            over=lambda placement, _queue: self.over.append(placement.job_id),
            advice=lambda: self.advice,
        )

    def restart(self) -> None:
        self.steps.dies_after = None
        self.helper = self.new_helper()
