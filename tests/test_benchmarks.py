"""The benchmarks work, and say why when they cannot measure. What they find is not judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("snapshot", {"noop_turn_s", "one_node_s", "two_nodes_s"}),
        ("report", {"slices_s", "cpu_seconds", "rss_mib"}),
        ("agent", {"agent_rss_mib", "agent_idle_cpu_percent", "hook_over_python"}),
    ],
)
def test_a_quick_run_gives_all_figures(name: str, figures: set[str]) -> None:
    command = [sys.executable, f"{name}.py", "--quick", "--json"]

    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=False)

    assert done.stderr == ""
    assert figures <= json.loads(done.stdout).keys()
