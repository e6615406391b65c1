"""`interleave profile` and `interleave pair`: what workloads do, and which of them should share devices."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from slurm_interleave.client.cli.link import orchestrator
from slurm_interleave.client.cli.query import source_options
from slurm_interleave.client.cli.times import time_text
from slurm_interleave.client.core.config import config_path, load_section
from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.orchestrator.db_command import database_of, database_options
from slurm_interleave.orchestrator.json_file import read_json
from slurm_interleave.orchestrator.pairing.choice import choose, explain
from slurm_interleave.orchestrator.pairing.config import PairingConfig
from slurm_interleave.orchestrator.pairing.declared import declared
from slurm_interleave.orchestrator.pairing.moves import Moves
from slurm_interleave.orchestrator.pairing.pools import in_lines, parse_pools
from slurm_interleave.orchestrator.pairing.profile import (
    HORIZON_S,
    LEAST_TURNS,
    Profile,
    as_text,
    by_name,
    learn,
    parse,
)
from slurm_interleave.orchestrator.pairing.rating import Candidate, Rater, in_words

_NONE = (
    f"nothing is known of any workload yet: that takes {LEAST_TURNS} turns of it that are over; or declare "
    "it with: interleave profile import FILE"
)


@click.group(invoke_without_command=True, short_help="Show what workloads do, learned or declared.")
@click.pass_context
def profile(context: click.Context) -> None:
    """Show what workloads do: learned from their turns, or declared."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
        context.exit(2)


@profile.command()
@database_options
@click.argument("names", nargs=-1)
def show(config: str | None, database: str | None, names: Sequence[str]) -> None:
    """List the profiles of NAMES, or all."""
    found = _profiles(config, database)
    click.echo(f"{'workload':40} {'period':>9} {'held':>9} {'share':>6} {'switch':>8} {'context':>9} turns")
    if not found and not names:
        click.echo(_NONE, err=True)
    for one in _named(found, names):
        click.echo(
            f"{one.name:40} {one.period_s:7.1f} s {one.held_s:7.1f} s {one.share:6.0%} {one.switch_s:6.1f} s "
            f"{one.context_bytes / 2**30:5.1f} GiB {f'{one.turns:.0f}' if one.turns else 'declared'}"
        )
        for phase in one.phases:
            many = f", {phase.times:.1f} in each step" if abs(phase.times - 1) > 0.05 else ""
            click.echo(f"  {phase.name}: {phase.held_s:.1f} s, varies by {phase.spread:.0%}{many}")


@profile.command()
@database_options
@click.argument("names", nargs=-1)
def export(config: str | None, database: str | None, names: Sequence[str]) -> None:
    """Print the profiles of NAMES, or all, as JSON."""
    found = _named(_profiles(config, database), names)
    click.echo(json.dumps({"profiles": as_text(found)}, indent=2))


@profile.command(name="import", short_help="Keep the profiles of a file.")
@database_options
@click.argument("file", type=click.Path(path_type=Path))
def import_(config: str | None, database: str | None, file: Path) -> None:
    """Keep the profiles of FILE (as export prints them) where nothing was learned of a workload."""
    del database
    kept = _kept(config)
    new = by_name(parse(read_json(file)))
    target = Path(_config(config).profiles)
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_suffix(".new")
    fresh.write_text(json.dumps({"profiles": as_text({**kept, **new}.values())}, indent=2) + "\n")
    fresh.replace(target)
    click.echo(f"{target}: {len(new)} profiles imported, {len(kept.keys() | new.keys())} in all")


@click.command(short_help="Say which jobs should share devices.")
@click.option("--explain", "job_id", metavar="JOB", help="Rate each partner of JOB, in numbers.")
@click.option("--jobs", "file", type=click.Path(path_type=Path), help="Jobs of a file, not the live ones.")
@click.option(
    "--pools",
    type=click.Path(path_type=Path),
    help="What jobs of a file do that share samplers and trainers.",
)
@source_options
def pair(
    config: str | None, address: str | None, job_id: str | None, file: Path | None, pools: Path | None
) -> None:
    """Say which jobs should share devices: of those that are placed or wait, or of a file.

    Of live jobs interleaved itself answers, by what it goes by when it places them: what is known of their
    workloads, the hours that --time leaves them, the host memory of the nodes. You learn of your own jobs
    and of those in a group with one of them; operators learn of all.
    """
    if pools is not None:
        lines = in_lines(parse_pools(read_json(pools)), _config(config).rules.epsilon)
    elif file is not None:
        jobs, rater = _jobs_of(read_json(file)), Rater(_config(config).rules)
        lines = _groups(jobs, rater) if job_id is None else _explained(job_id, jobs, rater)
    else:
        lines = _live(config, address, job_id)
    for line in lines:
        click.echo(line)


def _live(config: str | None, address: str | None, job_id: str | None) -> Iterator[str]:
    with orchestrator(config, address) as link:
        told = link.explain_pairing(job_id or "")
    yield from told.lines or ["no job has a place or waits for one"]
    yield f"by what placement saw at {time_text(told.at)}"


def _groups(jobs: Sequence[Candidate], rater: Rater) -> Iterator[str]:
    told = choose(jobs, rater)
    yield from map(in_words, told)
    grouped = {member.job_id for verdict in told for member in verdict.members}
    for job in jobs:
        if job.job_id not in grouped:
            told_of = f"nobody to gain from in its group {job.group}" if job.group else "alone"
            yield f"{job.job_id} ({job.profile.name}): {told_of}"


def _explained(job_id: str, jobs: Sequence[Candidate], rater: Rater) -> Iterator[str]:
    mine = next((job for job in jobs if job.job_id == job_id), None)
    if mine is None:
        raise BadArgument(f"job {job_id} is not among `jobs` of the file")
    yield from map(in_words, explain(mine, jobs, rater))


def _jobs_of(data: Any) -> list[Candidate]:
    """Return the jobs of `{"profiles": [...], "jobs": [{"job_id", "profile", ...}]}`."""
    profiles = by_name(parse(data))
    entries = data.get("jobs")
    if not isinstance(entries, list):
        raise BadArgument("the file needs `jobs`, a list of objects with job_id and profile")
    found = [_candidate_of(entry, profiles) for entry in entries]
    twice = [job_id for job_id, times in Counter(job.job_id for job in found).items() if times > 1]
    if twice:
        raise BadArgument(f"`jobs` names job {twice[0]} twice; give each a job_id of its own")
    return found


def _candidate_of(entry: Any, profiles: Mapping[str, Profile]) -> Candidate:
    kinds: dict[str, Any] = {"hours": (int, float), "epsilon": (int, float), "host_bytes": int}
    names = {field.name for field in fields(Candidate)}
    if not isinstance(entry, Mapping) or set(entry) - names or not {"job_id", "profile"} <= set(entry):
        raise BadArgument(f"job {entry!r} needs job_id and profile, and may have {', '.join(sorted(names))}")
    for name, value in entry.items():
        if isinstance(value, bool) or not isinstance(value, kinds.get(name, str)):
            raise BadArgument(f"job {entry['job_id']!r}: {name} is {value!r}, which is of a wrong kind")
        if name in kinds and not 0 <= value < 1e18:
            raise BadArgument(f"job {entry['job_id']!r}: {name} is {value!r}; it takes a number from 0 on")
    if entry["profile"] not in profiles:
        raise BadArgument(f"job {entry['job_id']}: profile {entry['profile']} is not among `profiles`")
    return Candidate(**{**entry, "profile": profiles[entry["profile"]]})


def _profiles(config: str | None, database: str | None) -> list[Profile]:
    """Return what was learned, and what is declared of other workloads, in the order of their names."""
    from slurm_interleave.sql.slices import SliceFilter

    now = time.time()
    with database_of(config, database) as opened:
        rows = (row for page in opened.slices(SliceFilter(start=now - HORIZON_S)) for row in page)
        learned = by_name(learn(map(Moves().own, rows), now))
    return list(by_name({**_kept(config), **learned}.values()).values())


def _kept(config: str | None) -> dict[str, Profile]:
    return declared(Path(_config(config).profiles))


def _config(config: str | None) -> PairingConfig:
    return load_section(PairingConfig, "pairing", config_path(config))


def _named(found: Sequence[Profile], names: Sequence[str]) -> list[Profile]:
    missing = sorted(set(names) - {one.name for one in found})
    if missing:
        raise BadArgument(f"no profile is called {missing[0]}; interleave profile show lists all")
    return [one for one in found if not names or one.name in names]
