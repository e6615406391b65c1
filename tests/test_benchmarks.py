"""What the benchmarks say when they cannot measure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SILENT = """
import asyncio
import snapshot
import snapshot_agents

async def ask_who_is_silent(*_):
    orders = snapshot_agents.Orders()
    orders.connected("n1")
    await orders.ask("n1", "SNAPSHOT")

snapshot_agents.ANSWER_S = 0.01
snapshot.run = ask_who_is_silent
snapshot.main(["--quick"])
"""


def test_an_agent_that_does_not_answer_is_told_in_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SILENT], cwd=BENCHMARKS, capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert done.stderr == "snapshot: SNAPSHOT on node n1: its agent has not answered within 0.01 s\n"
