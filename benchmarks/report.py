"""How long `sinterleave` takes over a history of a million slices, and how much memory: see README.md."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from databases import database_of
from stand import Server, Stand

from slurm_interleave.client.core.states import SliceState
from slurm_interleave.sql.rows import Slice
from slurm_interleave.sql.store import Store, row_id

GROUPS, TURNS, BATCH = 250, 200, 2000
PHASE_S, OFF_S = 45.0, 55.0
BEGAN = 1_760_000_000.0
EVERYTHING = ("-S", "2025-10-01")


@dataclass(frozen=True)
class Report:
    """A report: its arguments, and whether it reads the whole history."""

    name: str
    arguments: tuple[str, ...]
    whole: bool = True


REPORTS = (
    Report("summary", ("--summary", *EVERYTHING, "-P")),
    Report("summary_by_day", ("--summary=day", *EVERYTHING, "-P")),
    Report("jobs", ("-X", *EVERYTHING, "-P")),
    Report("jobs_of_a_user", ("-X", *EVERYTHING, "-P", "-u", "user7"), whole=False),
    Report("slices_of_a_job", ("-j", "100007", "-P"), whole=False),
)
LIST = Report("slices", (*EVERYTHING, "-P"))  # the last: the peak of the programs before it was less


def turns(count: int) -> Iterator[Slice]:
    """Yield *count* turns of jobs in pairs, which take turns of 45 s on the 4 devices of their group."""
    for number in range(count):
        place, group = divmod(number, GROUPS)
        pair, turn = divmod(place, 2 * TURNS)
        job = 100_000 + 2 * (pair * GROUPS + group) + turn % 2
        granted = BEGAN + (place + 1) * (PHASE_S + 5)
        yield Slice(
            epoch=number + 1,
            job_id=str(job),
            group=f"grpo{group}",
            role="",
            uid=1000 + group % 40,
            user=f"user{group % 40}",
            account=f"lab{group % 8}",
            partition="interleave",
            name="train",
            backend="cuda",
            nodes=(f"n{group}",),
            devices=tuple(f"n{group}/{i}" for i in range(4)),
            phase="rollout" if turn % 4 < 2 else "train",
            state=SliceState.YIELDED,
            requested=granted - 10,
            granted=granted,
            ended=granted + PHASE_S,
            switched=True,
            switch_s=5.0,
            snapshot_s=2.4,
            restore_s=2.5,
            switch_bytes=64 << 30,
            off_s=OFF_S - 10 if turn > 1 else 0.0,
            share=2.0 if turn > 1 else 4.0,
            partners=(str(job ^ 1),),
        )


def fill(url: str, count: int) -> None:
    """Record *count* slices as the orchestrator does, many in a transaction."""
    with contextlib.closing(Store(url)) as store:
        batch: list[Slice] = []
        for row in turns(count):
            batch.append(row)
            if len(batch) == BATCH or row.epoch == count:
                store.record({row_id(one): one for one in batch}, row.epoch)
                batch = []


def asked(server: Server, report: Report) -> tuple[float, float, int]:
    """Return the wall and processor seconds of `sinterleave` and its answer, and how many lines it wrote."""
    program = Path(sys.executable).with_name("sinterleave")
    environ = {**os.environ, "INTERLEAVE_CLIENT_AUTH": "none"}
    began, used = time.perf_counter(), server.cpu_s() + _children_s()
    with subprocess.Popen(
        [program, "--address", server.address, *report.arguments], stdout=subprocess.PIPE, env=environ
    ) as process:
        lines = sum(1 for _ in process.stdout or ())
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    wall = time.perf_counter() - began
    return wall, server.cpu_s() + _children_s() - used, lines


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


async def measure(count: int, rounds: int, filled: str = "") -> dict[str, Any]:
    """Return the figures of a history of *count* slices on SQLite; *filled* is a database that has one."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="interleave-bench-")))
        database = database_of(filled or "sqlite", folder, stack)
        stand = stack.enter_context(contextlib.closing(Stand(folder, database)))
        if not filled:
            fill(stand.database("report"), count)
        server = await stand.orchestrator("report")
        figures: dict[str, Any] = {"slices": count}
        for report in REPORTS:
            answers = [asked(server, report) for _ in range(rounds)]
            figures[f"{report.name}_s"] = round(statistics.median(wall for wall, _, _ in answers), 3)
            figures[f"{report.name}_cpu_s"] = round(statistics.median(used for _, used, _ in answers), 3)
            figures[f"{report.name}_lines"] = answers[0][2]
        figures["seconds"] = max(figures[f"{report.name}_s"] for report in REPORTS if report.whole)
        figures["cpu_seconds"] = max(figures[f"{report.name}_cpu_s"] for report in REPORTS if report.whole)
        peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{server.process.pid}/status").read_text())
        figures["orchestrator_rss_mib"] = round(int(peak[1]) / 1024, 1) if peak else 0.0
        figures["rss_mib"] = max(figures["orchestrator_rss_mib"], _children_mib())
        wall, _, figures["slices_lines"] = asked(server, LIST)
        figures["slices_s"] = round(wall, 1)
        figures["list_rss_mib"] = _children_mib()
    return figures


def _children_mib() -> float:
    """Return the largest peak of a program that has ended."""
    return round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024, 1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="2,000 slices, to see that all of it works")
    parser.add_argument("--slices", type=int, default=1_000_000, help="length of the history")
    parser.add_argument("--rounds", type=int, default=5, help="each figure is the median of so many")
    parser.add_argument("--filled", default="", metavar="URL", help="a database that has been filled")
    args = parser.parse_args(arguments)
    slices, rounds = (2_000, 1) if args.quick else (args.slices, args.rounds)
    figures = asyncio.run(measure(slices, rounds, args.filled))
    print(json.dumps(figures) if args.json else "\n".join(f"{k:<22} {v:>12,}" for k, v in figures.items()))


if __name__ == "__main__":
    main()
