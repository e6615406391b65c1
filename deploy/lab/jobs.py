"""Slurm's commands against the private cluster: submit, look, wait, cancel."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.processes import LabError, tail, wait_until
from slurm_interleave.client.core.states import SLURM_ENDED

_COMMAND_S = 60.0
_LOOK_S = 0.1


class SubmitRefused(LabError):
    """Slurm did not take the job; the text is what the user sees."""


class SlurmJobs:
    """Jobs of the cluster that *env* (SLURM_CONF) names; their output goes to *out*`/<job>.out`."""

    def __init__(self, env: Mapping[str, str], out: Path) -> None:
        self.env, self.out = dict(env), out

    def command(self, *argv: str, timeout_s: float = _COMMAND_S) -> str:
        """Run one of Slurm's (or our) commands; return its output. Raises `LabError` with its error text."""
        done = self._run(argv, self.env, None, timeout_s)
        if done.returncode:
            raise LabError(f"{shlex.join(argv)}: exit code {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def sbatch(
        self,
        command: Sequence[str],
        *,
        group: str = "",
        gres: str = "",
        name: str = "job",
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> str:
        """Submit *command* as a batch job and return its id.

        *group* is the interleave group, *env* is added to the job's environment, *user* submits (root may
        choose). Raises `SubmitRefused`.
        """
        argv = [
            "sbatch",
            "--parsable",
            f"--job-name={name}",
            f"--output={self.out}/%j.out",
            f"--chdir={self.out}",
        ]
        argv += [f"--interleave-group={group}"] if group else []
        argv += [f"--gres={gres}"] if gres else []
        argv += [*options, f"--wrap=exec {shlex.join(command)}"]
        done = self._run(argv, {**self.env, **(env or {})}, user, _COMMAND_S)
        if done.returncode:
            raise SubmitRefused(done.stderr.strip())
        return done.stdout.strip().partition(";")[0]

    def job(self, job_id: str) -> dict[str, str]:
        """Return what `scontrol show job` says, by field. Raises `LabError` for an unknown job."""
        line = self.command("scontrol", "--oneliner", "show", "job", job_id)
        fields: dict[str, str] = {}
        for key, _, value in (word.partition("=") for word in line.split()):
            fields.setdefault(key, value)  # the first counts: a command line may follow, with "=" in it
        return fields

    def state(self, job_id: str) -> str:
        """Return the job's state, such as PENDING or COMPLETED."""
        return self.job(job_id)["JobState"]

    def held(self, job_id: str) -> bool:
        """True if the job waits for a release."""
        job = self.job(job_id)
        return job["JobState"] == "PENDING" and job["Priority"] == "0"

    def wait(self, job_id: str, *states: str, timeout_s: float = 120.0) -> str:
        """Wait until the job is in one of *states* (COMPLETED where none is named) and return that state.

        Raises `LabError`, with the job's record and output, where it ends otherwise or in no time.
        """
        wanted = frozenset(states or ("COMPLETED",))
        wait_until(lambda: self.state(job_id) in wanted | SLURM_ENDED, timeout_s, _LOOK_S)
        state = self.state(job_id)
        if state not in wanted:
            raise LabError(
                f"job {job_id} is {state}, not {' or '.join(sorted(wanted))}, within {timeout_s:g} s\n"
                f"{self.command('scontrol', 'show', 'job', job_id)}--- output\n{self.output(job_id)}"
            )
        return state

    def scancel(self, *job_ids: str) -> None:
        """Cancel the jobs."""
        self.command("scancel", *job_ids)

    def cancel_all(self, timeout_s: float = 90.0) -> None:
        """Cancel all jobs, and wait until Slurm has none. Raises `LabError` with those that are left."""
        for state in ("PENDING", "RUNNING"):  # 26.05 takes --user=nobody for a mistake
            self.command("scancel", f"--state={state}")
        if not wait_until(lambda: not self._queue(), timeout_s, _LOOK_S):
            raise LabError(f"jobs are left after {timeout_s:g} s:\n{self._queue()}")

    def _queue(self) -> str:
        return self.command("squeue", "--noheader").strip()

    def begin_soon(self, job_id: str) -> None:
        """Let a requeued job start without the two minutes that Slurm waits."""
        # Not at once: a slurmd refuses a credential of the second in which it revoked the job's last one.
        self.command("scontrol", "update", f"JobId={job_id}", "StartTime=now+2")

    def output(self, job_id: str, lines: int = 200) -> str:
        """Return the end of what the job wrote."""
        return tail(self.out / f"{job_id}.out", lines)

    def _run(
        self, argv: Sequence[str], env: Mapping[str, str], user: str | None, timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                argv, env=env, user=user, capture_output=True, text=True, timeout=timeout_s, cwd=self.out
            )
        except subprocess.TimeoutExpired:
            raise LabError(f"{shlex.join(argv)}: no answer within {timeout_s:g} s") from None
        except OSError as error:
            raise LabError(f"{shlex.join(argv)}: {error}") from error
