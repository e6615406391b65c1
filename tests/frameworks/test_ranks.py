"""Two real ranks: the first acquires for both, before there is a process group and after."""

from __future__ import annotations

from pathlib import Path

from lab.processes import free_ports
from slurm_interleave.client import testing
from tests.frameworks import rank
from tests.torch.needs import torch


def events(path: Path) -> list[tuple[int, str]]:
    lines = [line.partition(" ")[::2] for line in path.read_text().splitlines()]
    return [(int(at), what) for at, what in lines]


def test_no_rank_works_but_between_the_grant_and_the_yield_of_the_first(tmp_path: Path) -> None:
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0]), "WORLD_SIZE": str(rank.RANKS)}

    with testing.orchestrator() as turns:
        env |= turns.environ("1")
        torch.multiprocessing.spawn(rank.main, args=(str(tmp_path), env), nprocs=rank.RANKS)

    first, other = (events(tmp_path / str(number)) for number in range(rank.RANKS))
    holding, held = False, 0
    for _, who, what in sorted([(at, 0, what) for at, what in first] + [(at, 1, what) for at, what in other]):
        if what in ("work", "done"):
            assert holding, f"rank {who}: {what} without the devices"
        elif what.startswith("acquire"):
            assert who == 0
            holding, held = True, held + 1
        elif what == "yield":
            holding = False
    assert held == 1 + (rank.STEPS - 1) + 1
    assert [what for _, what in first if what.startswith("error")] == ["error no room"]
    assert [what for _, what in other if what.startswith("error")] == [
        "error rank 1: rank 0 was not granted the devices: no room"
    ]
