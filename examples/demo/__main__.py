"""The demo's command line: `make demo` runs it."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from demo.jobs import DemoJob, Outcome, read_outcome, step_reached
from demo.measure import measure_alone, measure_interleaved
from demo.places import GROUP, Place, open_place
from demo.report import comparison, identical, proof, say_where
from demo.slices import read_slices
from lab import LabError
from slurm_interleave.client.timeline import read_work, write_timeline

_LOOK_S, _TELL_S, _JOB_S = 0.2, 2.0, 120.0


def main() -> int:
    """Run the demo; 0 if everything went well and nothing changed."""
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--no-slurm", action="store_true", help="local processes in place of Slurm")
    parser.add_argument("--steps", type=int, default=16, help="training steps of each job")
    parser.add_argument("--timeline", type=Path, default=Path("build/demo-timeline.html"))
    args = parser.parse_args()
    # SIGTERM ends the demo as Ctrl-C does: by an exception, so that everything is stopped and removed.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    jobs = (DemoJob("A", 1, args.steps), DemoJob("B", 2, args.steps))
    console = Console(width=None if sys.stdout.isatty() else 110)
    where = (
        "without Slurm: local processes" if args.no_slurm else "a private Slurm cluster in a scratch folder"
    )
    console.print(f"Starting {where} ...")
    try:
        with open_place(slurm=not args.no_slurm) as place:
            return _show(console, place, jobs, args.timeline.absolute())
    except KeyboardInterrupt:
        console.print("Interrupted; everything that was started is stopped and removed.")
        return 130
    except LabError as error:
        console.print(f"demo: {error}", style="red", markup=False, highlight=False)
        return 1


def _show(console: Console, place: Place, jobs: Sequence[DemoJob], timeline: Path) -> int:
    console.print("1. Both jobs one after the other, each with the device to itself")
    alone = [_run(console, place, [job], "alone")[0][1] for job in jobs]
    work_alone = [item for path in place.work_files() for item in read_work(path)]
    console.print(f"2. Both at once, taking turns on one device: --interleave-group={GROUP}")
    pairs = _run(console, place, jobs, "interleaved")
    ids, shared = [job_id for job_id, _ in pairs], [outcome for _, outcome in pairs]
    _print_report(place, ids)
    slices = read_slices(place.config, ids)
    work = [item for path in place.work_files() for item in read_work(path) if item.job in ids]
    console.print(comparison(measure_alone(alone, work_alone), measure_interleaved(shared, work, slices)))
    console.print(proof(jobs, alone, shared))
    timeline.parent.mkdir(parents=True, exist_ok=True)
    write_timeline(timeline, slices, work, f"Two RL jobs take turns on one device (group {GROUP})")
    say_where(console, timeline)
    violations = [line for path in place.work_files() for line in _violations(path.parent)]
    if violations:
        console.print(f"The devices saw {len(violations)} violations: {violations[0]}", style="red")
    same = all(identical(one, two) for one, two in zip(alone, shared, strict=True))
    return 0 if same and not violations else 1


def _run(console: Console, place: Place, jobs: Sequence[DemoJob], kind: str) -> list[tuple[str, Outcome]]:
    """Run *jobs* at once and return their ids and outcomes."""
    outs = [place.root / "out" / f"{job.label}-{kind}" for job in jobs]
    submit = place.submit_alone if kind == "alone" else place.submit_interleaved
    ids = [submit(job, out) for job, out in zip(jobs, outs, strict=True)]
    began = told = time.monotonic()
    while any(place.running(job_id) for job_id in ids):
        now = time.monotonic()
        if now - began > _JOB_S:
            raise LabError(f"jobs {', '.join(ids)} did not end within {_JOB_S:g} s")
        if now - told >= _TELL_S:
            told = now
            console.print(_progress(jobs, outs, now - began), highlight=False)
        time.sleep(_LOOK_S)
    for job_id in ids:
        place.check(job_id)
    console.print(_progress(jobs, outs, time.monotonic() - began) + ", done", highlight=False)
    return [(job_id, read_outcome(out)) for job_id, out in zip(ids, outs, strict=True)]


def _progress(jobs: Sequence[DemoJob], outs: Sequence[Path], seconds: float) -> str:
    states = []
    for job, out in zip(jobs, outs, strict=True):
        step, reward = step_reached(out)
        states.append(
            f"{job.label} step {step}/{job.steps}" + (f", reward {float(reward):.2f}" if reward else "")
        )
    return f"   {seconds:5.1f} s  " + "   ".join(states)


def _print_report(place: Place, ids: Sequence[str]) -> None:
    program = Path(sys.executable).parent / "sinterleave"
    env = {**os.environ, "INTERLEAVE_CONFIG": str(place.config)}
    columns = "JobID,Group,User,Phase,Start,End,Waited,Held,SwitchIn,Switches,State"
    for extra in ([], ["-X"]):
        argv = [str(program), "-j", ",".join(ids), "-o", columns, *extra]
        print(f"\n$ {' '.join(['sinterleave', *argv[1:]])}", flush=True)
        subprocess.run(argv, env=env, check=False)
    print(flush=True)


def _violations(folder: Path) -> list[str]:
    path = folder / "violations.jsonl"
    return path.read_text().splitlines() if path.exists() else []


if __name__ == "__main__":
    sys.exit(main())
