"""Whether Slurm has requeued a job is found out before anything is done by it."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest

from slurm_interleave.client.core.errors import SlurmFailed
from slurm_interleave.client.core.slurm_command import SlurmLate
from slurm_interleave.node_agent import requeue
from slurm_interleave.node_agent.requeue import is_running, requeue_in_slurm

REFUSED = "slurm_requeue_job: Requested operation is presently disabled for job 17"
TIMED_OUT = "slurm_requeue_job: Socket timed out on send/recv operation for job 17"
NO_ANSWER = "Unable to contact slurm controller (connect failure)"


def shown(state: str, restarts: int = 0, job_id: int = 17) -> str:
    return (
        f"JobId={job_id} JobName=a JobState=RUNNING\n   UserId=a(1) GroupId=a(1)\n"
        f"   JobState={state} Reason=None Dependency=(null)\n"
        f"   Requeue=1 Restarts={restarts} BatchFlag=1 Reboot=0 ExitCode=0:0\n"
    )


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requeue, "_AGAIN_S", 0.0)


def scontrol(
    monkeypatch: pytest.MonkeyPatch, requeues: Sequence[str | Exception], shows: Sequence[str | Exception]
) -> list[str]:
    """Have the commands answered in turn, a requeue by its error, and return what was asked."""
    asked: list[str] = []
    to_requeue, to_show = iter(requeues), iter(shows)

    async def run(argv: list[str], *_: object) -> str:
        asked.append(argv[1])
        if argv[1] == "requeue":
            if error := next(to_requeue):
                raise error if isinstance(error, Exception) else SlurmFailed(error)
            return ""
        answer = next(to_show)
        if isinstance(answer, Exception) or "JobId=" not in answer:
            raise answer if isinstance(answer, Exception) else SlurmFailed(answer)
        return answer

    monkeypatch.setattr(requeue, "run_slurm", run)
    return asked


@pytest.mark.parametrize("state", ["COMPLETING", "PENDING", "REQUEUED", "REQUEUE_HOLD"])
async def test_a_requeue_that_was_carried_out_though_it_failed_is_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, state: str
) -> None:
    asked = scontrol(monkeypatch, [TIMED_OUT], [shown(state)])

    await requeue_in_slurm("17", 0)

    assert asked == ["requeue", "show"]


async def test_a_job_that_runs_again_was_requeued(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    scontrol(monkeypatch, [REFUSED], [shown("RUNNING", 1)])

    await requeue_in_slurm("17", 0)


async def test_a_job_that_slurm_knows_no_more_does_not_run_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scontrol(monkeypatch, [TIMED_OUT], ["slurm_load_jobs error: Invalid job id specified"])

    await requeue_in_slurm("17", 0)


@pytest.mark.parametrize("state", ["RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING"])
async def test_a_refused_requeue_of_a_job_that_runs_on_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, state: str
) -> None:
    scontrol(monkeypatch, [REFUSED], [shown(state)])

    with pytest.raises(SlurmFailed, match="presently disabled"):
        await requeue_in_slurm("17", 0)


async def test_it_asks_until_slurm_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    busy = OSError(errno.EMFILE, "Too many open files")
    asked = scontrol(monkeypatch, [NO_ANSWER], [NO_ANSWER, busy, shown("PENDING")])

    await requeue_in_slurm("17", 0)

    assert asked == ["requeue", "show", "show", "show"]


@pytest.mark.parametrize("late", [TIMED_OUT, SlurmLate("scontrol gave no answer within 30 s")])
async def test_a_late_requeue_of_a_job_that_runs_still_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, late: str | SlurmLate
) -> None:
    """It may be carried out after the job has been seen to run."""
    asked = scontrol(monkeypatch, [late, ""], [shown("RUNNING")])

    await requeue_in_slurm("17", 0)

    assert asked == ["requeue", "show", "requeue"]


def test_of_an_array_the_record_of_the_job_itself_counts() -> None:
    both = shown("PENDING", job_id=170) + "\n" + shown("PENDING", job_id=18) + "\n" + shown("RUNNING")

    assert is_running(both, "17", None)
    assert not is_running(both, "18", None)
    assert not is_running(both, "19", None)


async def test_a_job_outside_slurm_is_not_requeued() -> None:
    await requeue_in_slurm("job-1")


async def test_a_requeue_without_scontrol_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(SlurmFailed, match="scontrol requeue 17: No such file"):
        await requeue_in_slurm("17")
