"""What interleaving costs Slurm: submission, placement, and whether pairs meet. See README.md."""

from __future__ import annotations

import argparse
import json
import re
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "deploy"))

from lab import Cluster, LabError
from lab.processes import wait_until
from slurm_interleave.orchestrator.placement.admin_comment import parse_comment

NODES, DEVICES, MEMBERS = ("n1", "n2"), 16, 4
SEATS = len(NODES) * DEVICES * MEMBERS
# 64 jobs start at once on each node of one machine: slurmctld is to wait longer than 10 s for an answer.
PATIENT = ("MessageTimeout=60", "BatchStartTimeout=60")
HOUR = "--begin=now+1hour"  # placed and released, but never started: what is measured is ours
NOT_LAUNCHED = "launch"  # failed: held by Slurm, and lost to its user
# In the log of slurmctld: the first pin, or the note of one, and each release.
TOLD = re.compile(r"^\[(\S+)\] \S*_update_job: setting admin_comment to ", re.MULTILINE)
RELEASED = re.compile(r"^\[(\S+)\] sched: _release_job_rec: release hold on ", re.MULTILINE)
SUBMITTED = re.compile(r"_slurm_rpc_submit_batch_job: JobId=(\d+) InitPrio=\d+ usec=(\d+)")
RULES = re.compile(r"interleave-benchmark: rules usec=(\d+)")
# The processor time of all threads of slurmctld: not less than what the rules took, but for their waits.
TIMED = """
local submit = slurm_job_submit
function slurm_job_submit(...)
    local began = os.clock()
    local code = submit(...)
    slurm.log_info("interleave-benchmark: rules usec=%.0f", (os.clock() - began) * 1e6)
    return code
end

return slurm.SUCCESS
"""
Figures = dict[str, Any]


def submissions(cluster: Cluster, count: int) -> Figures:
    """Submit *count* jobs with the option and as many without, in turns; return what sbatch took.

    Each comes first every other time, so that what the one leaves to do is no burden of the other alone.
    """
    wall: dict[str, list[float]] = {"with": [], "without": []}
    cpu: dict[str, list[float]] = {"with": [], "without": []}
    jobs: dict[str, list[str]] = {"with": [], "without": []}
    for number in range(count):
        both = [("with", f"cost-{number}"), ("without", "")]
        for kind, group in both if number % 2 else reversed(both):
            began, used = time.monotonic(), children_cpu_s()
            job = cluster.sbatch(["true"], group=group, gres="gpu:1", options=[HOUR])
            wall[kind].append(time.monotonic() - began)
            cpu[kind].append(children_cpu_s() - used)
            jobs[kind].append(job)
            cluster.scancel(job)
    with_ms, plain_ms = (statistics.median(wall[kind]) * 1e3 for kind in ("with", "without"))
    took = dict(SUBMITTED.findall((cluster.layout.log / "slurmctld.log").read_text()))
    with_us, plain_us = (statistics.median(int(took[job]) for job in some) for some in jobs.values())
    return {
        "sbatch_ms": round(with_ms, 2),
        "sbatch_plain_ms": round(plain_ms, 2),
        "sbatch_over_plain": round(with_ms / plain_ms, 3),
        "sbatch_cpu_over_plain": round(statistics.median(cpu["with"]) / statistics.median(cpu["without"]), 3),
        "submit_rpc_over_plain": round(with_us / plain_us, 2),
    }


def children_cpu_s() -> float:
    """Return the processor time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def placement(cluster: Cluster, count: int) -> Figures:
    """Submit *count* jobs while the orchestrator is down, start it, and see how fast they are placed."""
    cluster.kill9("interleaved")
    time_rules(cluster)
    log = cluster.layout.log
    before = len((log / "slurmctld.log").read_text())
    groups = [f"many-{number // MEMBERS}" for number in range(count)]
    jobs = [cluster.sbatch(["true"], group=group, gres="gpu:1", options=[HOUR]) for group in groups]
    told = (log / "slurmctld.log").read_text()
    old = len(told)
    cluster.start_again("interleaved")

    def times(line: re.Pattern[str]) -> list[datetime]:
        return [datetime.fromisoformat(at) for at in line.findall((log / "slurmctld.log").read_text()[old:])]

    first = min(count, SEATS)
    if not wait_until(lambda: len(times(RELEASED)) >= first, 120, 0.2):
        raise LabError(f"{len(times(RELEASED))} of {first} jobs were placed within two minutes")
    placed_per_s = first / (times(RELEASED)[first - 1] - times(TOLD)[0]).total_seconds()
    starts_per_s = scontrol_starts_per_s(cluster, jobs[:first])
    cluster.scancel(*jobs)
    return {
        "submit_rpc_us": percentiles([took for _, took in SUBMITTED.findall(told, before)]),
        "submit_rules_us": percentiles(RULES.findall(told, before)),
        "placed": first,
        "placed_per_s": round(placed_per_s, 1),
        "scontrol_starts_per_placed": round(starts_per_s / placed_per_s, 2),
    }


def time_rules(cluster: Cluster) -> None:
    """Let slurmctld log what our part of job_submit takes from now on; it reads a script that is newer."""
    script = cluster.layout.etc / "job_submit.lua"
    ours, _, _ = script.read_text().rpartition("\nreturn slurm.SUCCESS")
    script.write_text(ours + TIMED)


def percentiles(values: Sequence[str]) -> dict[str, int]:
    """Return the median and the 99th percentile of the numbers."""
    ranked = sorted(map(int, values))
    return {"p50": ranked[len(ranked) // 2], "p99": ranked[int(len(ranked) * 0.99)]}


def scontrol_starts_per_s(cluster: Cluster, jobs: Sequence[str]) -> float:
    """Change each of *jobs* by a scontrol of its own, eight at a time; return how many it starts a second."""
    began = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda job: cluster.command("scontrol", "update", f"JobId={job}", "Nice=0"), jobs))
    return len(jobs) / (time.monotonic() - began)


def runs(cluster: Cluster, count: int) -> Figures:
    """Submit *count* short jobs at once and return how many were registered and came to a good end."""
    began = time.monotonic()
    jobs = [cluster.sbatch(["true"], group=f"run-{n // MEMBERS}", gres="gpu:1") for n in range(count)]
    wanted = set(jobs)

    def ended() -> bool:
        lines = cluster.command("squeue", "--noheader", "--format=%i %r").splitlines()
        left = (line.partition(" ") for line in lines)
        return not wanted & {job for job, _, reason in left if not reason.startswith(NOT_LAUNCHED)}

    if not wait_until(ended, 60 + 2.0 * count, 1.0):
        raise LabError("not all jobs ended")
    log = (cluster.layout.log / "interleaved.log").read_text()
    registered = set(re.findall(r"event=job\.registered job=(\d+) ", log)) & wanted
    held = set(cluster.command("squeue", "--noheader", "--format=%i").split())
    ran_s = round(time.monotonic() - began, 1)
    return {"ran": count, "ran_s": ran_s, "lost": count - len(registered - held)}


def pairs(cluster: Cluster, count: int) -> Figures:
    """Submit *count* pairs, each into a group of its own, and return how many got the same devices."""
    together = 0
    for number in range(count):
        pair = [cluster.sbatch(["true"], group=f"pair-{number}", gres="gpu:2", options=[HOUR]) for _ in "ab"]
        if not wait_until(lambda jobs=pair: all(place(cluster, job) for job in jobs), 120, 0.05):
            raise LabError(f"pair {pair} got no place\n{cluster.logs('interleaved')}")
        together += len({place(cluster, job) for job in pair}) == 1
        cluster.scancel(*pair)
    return {"pairs": count, "pairs_together": together}


def place(cluster: Cluster, job: str) -> tuple[str, tuple[int, ...]] | None:
    """Return the nodes and the devices that the job was given; None: it waits for them."""
    shown = cluster.job(job)
    comment = parse_comment(shown.get("AdminComment", ""))
    return (shown["ReqNodeList"], comment.indices) if comment and comment.indices else None


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="a tenth of all, to see that it works")
    args = parser.parse_args(arguments)
    share = 10 if args.quick else 1
    config = {"placement": {"poll_s": 2.0}}
    try:
        with Cluster.start(
            nodes=NODES, devices=DEVICES, members=MEMBERS, config=config, slurm=PATIENT
        ) as cluster:
            figures = submissions(cluster, 200 // share) | placement(cluster, 1000 // share)
            figures |= pairs(cluster, 100 // share) | runs(cluster, 1000 // share)
    except LabError as error:
        sys.exit(f"placement: {error}")
    print(
        json.dumps(figures)
        if args.json
        else "\n".join(f"{key:<20} {value}" for key, value in figures.items())
    )


if __name__ == "__main__":
    main()
