"""What an idle node agent and a call of its hook take of their node: see README.md."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from stand import Broken, Server, Stand

MAX_RSS_MIB = 60.0
MAX_CPU_PERCENT = 0.5
JOBS = 16


@contextlib.contextmanager
def processes(jobs: Sequence[str]) -> Iterator[None]:
    """One process a job, which does nothing."""
    started = [
        subprocess.Popen(["sleep", "3600"], env={**os.environ, "INTERLEAVE_JOB_ID": job}) for job in jobs
    ]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


async def idle(agent: Server, seconds: float) -> dict[str, float]:
    """Return what the agent takes while nothing happens."""
    await asyncio.sleep(min(seconds, 3.0))  # its start is over
    before, began = agent.cpu_s(), time.monotonic()
    await asyncio.sleep(seconds)
    used, took = agent.cpu_s() - before, time.monotonic() - began
    return {"agent_rss_mib": agent.rss_mib(), "agent_idle_cpu_percent": 100 * used / took}


def hook_over_python(folder: Path, pairs: int = 15) -> float:
    """Return how much longer a call of the hook takes than a start of Python, by medians, in turns.

    The agent is away: that is the price a job pays wherever we are installed.
    """
    hook = [str(Path(sys.executable).with_name("interleave-hook")), "job-end", "--job=17"]
    commands = {"hook": [*hook, f"--socket={folder}/none.sock"], "python": [sys.executable, "-c", "pass"]}
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(pairs):
        for name, command in commands.items():
            began = time.perf_counter()
            subprocess.run(command, stderr=subprocess.DEVNULL, check=False)
            times[name].append(time.perf_counter() - began)
    return statistics.median(times["hook"]) / statistics.median(times["python"])


async def measure(seconds: float, backend: str) -> dict[str, float]:
    """Start an orchestrator and an agent with 16 jobs, and look at the agent."""
    jobs = [str(number) for number in range(1, JOBS + 1)]
    with tempfile.TemporaryDirectory(prefix="interleave-bench-") as folder:
        stand = Stand(Path(folder), f"sqlite:///{folder}/{{}}.db".format)
        try:
            orchestrator = await stand.orchestrator("idle")
            agent, _ = await stand.agent(orchestrator, jobs, backend)
            with processes(jobs):
                return {**await idle(agent, seconds), "hook_over_python": hook_over_python(Path(folder))}
        finally:
            stand.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print; exit 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="for a second, to see that all of it works")
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long it is watched")
    parser.add_argument("--backend", default="sim", help="[agent] backend")
    args = parser.parse_args(arguments)
    try:
        figures = asyncio.run(measure(1.0 if args.quick else args.seconds, args.backend))
    except Broken as error:
        sys.exit(f"agent: {error}")
    rss, cpu = figures["agent_rss_mib"], figures["agent_idle_cpu_percent"]
    if args.json:
        print(json.dumps(figures))
    else:
        print(f"agent with {JOBS} jobs: {rss:.1f} MiB (goal {MAX_RSS_MIB:g})")
        print(f"a call of the hook: {figures['hook_over_python']:.1f} starts of Python")
        print(f"idle: {cpu:.2f} % of a core (goal {MAX_CPU_PERCENT:g})")
    sys.exit(rss >= MAX_RSS_MIB or cpu >= MAX_CPU_PERCENT)


if __name__ == "__main__":
    main()
