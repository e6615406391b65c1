"""`interleave simulate`: what turns would bring, by the production core under a virtual clock."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path

import click

from slurm_interleave.client.cli.words import OneOf
from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.orchestrator.core.policy import POLICIES
from slurm_interleave.orchestrator.core.rules import EAGER, Rules
from slurm_interleave.orchestrator.json_file import read_json
from slurm_interleave.orchestrator.simulator.figures import Figures, figures
from slurm_interleave.orchestrator.simulator.program import Cost, Job
from slurm_interleave.orchestrator.simulator.sacct import from_sacct
from slurm_interleave.orchestrator.simulator.traces import declared_jobs, jobs_in
from slurm_interleave.orchestrator.simulator.workloads import Workload
from slurm_interleave.orchestrator.simulator.world import World

_SHOWN = 20
_jobs: Sequence[Job] = ()  # in a process of `compare`


@click.command(short_help="Say what turns would bring, from a trace.")
@click.argument("traces", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--policy", default="learned", type=OneOf(POLICIES), help="Compared with fifo.")
@click.option("--eager", default="off", type=OneOf(EAGER), help="As [turns] eager.")
@click.option("--jobs", type=click.IntRange(1), help="Only the first N jobs of the traces.")
@click.option("--devices", type=click.IntRange(1), help="Only jobs that share at most N devices each.")
@click.option("--backend-cost", metavar="S,R", help="Seconds of each snapshot and restore, for all jobs.")
@click.option("--sacct", is_flag=True, help="TRACES are output of sacct; --phases says what jobs do.")
@click.option("--phases", metavar="R,T", help="With --sacct: seconds of rollout and training of a step.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def simulate(
    traces: Sequence[Path],
    policy: str,
    eager: str,
    jobs: int | None,
    devices: int | None,
    backend_cost: str | None,
    sacct: bool,
    phases: str | None,
    as_json: bool,
) -> None:
    """Replay TRACES with the production core: duty, makespan, slowdown, against the bound and fifo."""
    cost = Cost(*_pair(backend_cost, "--backend-cost")) if backend_cost else None
    found: list[Job] = []
    for path in traces:
        found += _sacct_jobs(path, phases, cost) if sacct else jobs_in(read_json(path), cost=cost)
    if devices:
        found = [job for job in found if _devices(job) <= devices]
    found = found[:jobs] if jobs else found
    if len({job.name for job in found}) < len(found):
        raise BadArgument("two jobs of the traces have the same name; simulate them one after the other")
    if not found:
        raise BadArgument("the traces have no job that runs for at least one step")
    results = compare(found, [Rules(policy=name, eager=eager) for name in dict.fromkeys((policy, "fifo"))])
    click.echo(_as_json(results) if as_json else _as_text(results, len(found)))


def compare(jobs: Sequence[Job], rules: Sequence[Rules]) -> dict[str, Figures]:
    """Return what *jobs* come to under each of *rules*, by policy; each has a process of its own.

    Raises what a simulation raises, in the order of *rules*.
    """
    context = multiprocessing.get_context("fork")  # programs are closures, which are inherited alone
    with ProcessPoolExecutor(len(rules), context, _inherit, (jobs,)) as pool:
        return dict(zip((rule.policy for rule in rules), pool.map(_simulated, rules), strict=True))


def _inherit(jobs: Sequence[Job]) -> None:
    global _jobs
    _jobs = jobs


def _simulated(rules: Rules) -> Figures:
    return figures(_jobs, World(_jobs, rules).run())


def _devices(job: Job) -> int:
    return max(len(place.nodes) * len(place.devices) for place in job.pools.values())


def _pair(text: str | None, option: str) -> tuple[float, float]:
    try:
        first, second = (float(part) for part in (text or "").split(","))
    except ValueError:
        raise BadArgument(f"{option} {text or ''!r} must be two numbers of seconds, as 12.4,4.8") from None
    if not (0 <= first < 1e9 and 0 <= second < 1e9):
        raise BadArgument(f"{option} {text!r}: seconds must be 0 or more")
    return first, second


def _sacct_jobs(path: Path, phases: str | None, cost: Cost | None) -> list[Job]:
    rollout, train = _pair(phases, "--phases")
    if not train or not rollout:
        raise BadArgument(f"--phases {phases!r}: both phases must last longer than 0 s")
    text = path.read_text(encoding="utf-8", errors="replace")  # names of jobs are in any encoding
    found = from_sacct(text, Workload("sacct", rollout, train), cost or Cost(0.5, 0.5))
    if found.left_out:
        why = ", ".join(f"{number} {reason}" for reason, number in found.left_out.items())
        click.echo(f"{path}: {found.left_out.total()} lines left out: {why}", err=True)
    return declared_jobs(found.jobs)


def _as_json(results: dict[str, Figures]) -> str:
    return json.dumps(
        {name: {**asdict(result), "duty": result.duty} for name, result in results.items()}, indent=2
    )


def _as_text(results: dict[str, Figures], jobs: int) -> str:
    lines = [
        f"{jobs} jobs",
        f"{'policy':16} {'makespan':>10} {'bound':>10} {'duty':>7} {'slowdown':>9} saved",
    ]
    for name, result in results.items():
        worst = max(result.slowdown.values(), default=1.0)
        lines.append(
            f"{name:16} {result.makespan_s:8.0f} s {result.bound_s:8.0f} s {result.duty:7.1%} "
            f"{worst:8.2f}x {round(result.saved_device_s / 3600, 1) + 0.0:.1f} device-hours"
        )
    chosen = next(iter(results.values()))
    lines.append(f"{'pool':24} {'duty':>7} {'bound':>7} {'turns':>7} switches")
    lines += [
        f"{pool.name:24} {pool.duty:7.1%} {pool.bound:7.1%} {pool.turns:7} {pool.switches}"
        for pool in chosen.pools[:_SHOWN]
    ]
    if len(chosen.pools) > _SHOWN:
        lines.append(f"... and {len(chosen.pools) - _SHOWN} more pools; --json has all")
    return "\n".join(lines)
