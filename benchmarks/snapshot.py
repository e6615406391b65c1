"""What saving and restoring device state costs, beside what the same machine can do: see README.md."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import snapshot_cuda
import snapshot_torch
from figures import Goal, table
from snapshot_agents import Agents
from snapshot_sim import Figures, SimCopies, scratch
from stand import Broken, Stand


@dataclass(frozen=True)
class Size:
    """How much is measured in a round."""

    mib: int = 512
    calls: int = 300


def _over(above: str, below: str) -> Callable[[Figures], float]:
    return lambda figures: figures[above] / figures[below]


RATIOS = {
    "sim_snapshot_over_memcpy": _over("memcpy_s", "sim_snapshot_s"),
    "sim_restore_over_memcpy": _over("memcpy_s", "sim_restore_s"),
    "torch_cpu_over_memcpy": lambda figures: figures.get("torch_cpu", float("nan")),
    "agent_overhead_over_rtt": _over("noop_turn_s", "rtt_s"),
    "two_nodes_over_one": _over("two_nodes_s", "one_node_s"),
}
CUDA = ("cuda_snapshot_over_slowest_device", "cuda_restore_over_slowest_device")
GOALS = (
    Goal("sim: snapshot", "of memcpy", 0.8, lambda f: f["sim_snapshot_over_memcpy"], at_least=True),
    Goal("sim: restore", "of memcpy", 0.8, lambda f: f["sim_restore_over_memcpy"], at_least=True),
    Goal(
        "torch, host memory as a device",
        "of memcpy",
        0.8,
        lambda f: f["torch_cpu_over_memcpy"],
        at_least=True,
    ),
    Goal("agent: snapshot and restore, noop", "x RTT", 3, lambda f: f["agent_overhead_over_rtt"]),
    Goal("two nodes at once", "x one node", 1.1, lambda f: f["two_nodes_over_one"]),
    Goal("cuda, 8 processes: snapshot", "x slowest device", 1.2, lambda f: f[CUDA[0]]),
    Goal("cuda, 8 processes: restore", "x slowest device", 1.2, lambda f: f[CUDA[1]]),
)

UNIT = Path(__file__).parent.parent / "deploy" / "systemd" / "interleave-agent.service"


def as_the_unit_runs() -> None:
    """Begin anew with the environment of the agent's unit: the C library reads it once, at the start."""
    lines = [
        line.partition("=")[2] for line in UNIT.read_text().splitlines() if line.startswith("Environment=")
    ]
    wanted = dict(line.split("=", 1) for line in lines)
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})  # noqa: S606


async def run(rounds: int, size: Size) -> Figures:
    """Return the ratios, each the median over the rounds of a ratio within one round, and the seconds."""
    copies = SimCopies(size.mib)
    with tempfile.TemporaryDirectory(prefix="interleave-bench-", dir=scratch()) as folder:
        stand = Stand(Path(folder), _no_database)
        agents = Agents(stand)
        try:
            await agents.start()
            await agents.round(size.calls)  # to warm up
            measured = [copies.round() | _torch(size) | await agents.round(size.calls) for _ in range(rounds)]
        finally:
            await agents.stop()
            await asyncio.to_thread(stand.close)
            copies.close()
    ratios = {key: statistics.median(map(ratio, measured)) for key, ratio in RATIOS.items()}
    seconds = {key: statistics.median(each[key] for each in measured) for key in measured[0]}
    ratios |= await asyncio.to_thread(_cuda, rounds)
    return {key: round(value, 6) for key, value in (ratios | seconds).items()}


def _no_database(name: str) -> str:
    raise Broken(f"no orchestrator {name} runs here")


def _cuda(rounds: int) -> Figures:
    """Return what the stub of the driver gives; nothing where it cannot be compiled."""
    if shutil.which("cc") is None:
        return dict.fromkeys(CUDA, float("nan"))
    return snapshot_cuda.measure(min(rounds, 3))


def _torch(size: Size) -> Figures:
    try:
        taken = snapshot_torch.measure("cpu", size.mib, rounds=7)
    except ImportError:
        return {}
    return {"torch_cpu": taken["suspend_over_copy"], "torch_cpu_resume": taken["resume_over_copy"]}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=5, help="each figure is the median of so many rounds")
    parser.add_argument("--quick", action="store_true", help="one short round, to see that all of it works")
    args = parser.parse_args(arguments)
    size, rounds = (Size(32, 50), 1) if args.quick else (Size(), args.rounds)
    try:
        figures = asyncio.run(run(rounds, size))
    except Broken as error:
        sys.exit(f"snapshot: {error}")
    if args.json:
        print(json.dumps({key: value for key, value in figures.items() if value == value}))
    else:
        print(table(figures, [(goal, goal.value(figures)) for goal in GOALS]))


if __name__ == "__main__":
    as_the_unit_runs()
    main()
