"""Many changes by one scontrol, run for real: a script takes its place, and keeps what each job was told."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from slurm_interleave.client.core.names import parse_group_name
from slurm_interleave.orchestrator.placement.admin_comment import AdminComment
from slurm_interleave.orchestrator.placement.placing import Placing, Seated, Todo
from slurm_interleave.orchestrator.placement.plan import Placement
from slurm_interleave.orchestrator.placement.ports import Update
from slurm_interleave.orchestrator.placement.reports import Reports
from slurm_interleave.orchestrator.placement.slurm import SlurmCommands
from slurm_interleave.orchestrator.placement.squeue import SlurmJob
from tests.placement.fakes import FakeBook, FakeFleet, Steps
from tests.placement.test_slurm import put

# Takes changes from its arguments or its input, as scontrol does; what it refuses it names, and it goes on.
SCONTROL = """
cd "${0%/*}" || exit
echo start >> starts
code=0
one() {
    job=$2; job=${job#JobId=}
    case " $(cat refused 2>/dev/null) " in
        *" $job "*) echo "Invalid job id specified for job $job" >&2; code=1; return;;
    esac
    case " $(cat deadly 2>/dev/null) " in *" $job "*) kill -9 $$;; esac
    case " $(cat hanging 2>/dev/null) " in *" $job "*) exec sleep 60;; esac
    echo "$@" >> done
}
[ $# -gt 0 ] && { one "$@"; exit $code; }
while read -r line; do
    [ "$line" = exit ] && exit $code
    one $line
done
"""


class Site:
    """A folder with a scontrol, and jobs that it refuses, dies at or hangs at."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        put(folder / "scontrol", SCONTROL)

    def at(self, what: str, *jobs: str) -> None:
        (self.folder / what).write_text(" ".join(jobs))

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    @property
    def released(self) -> list[str]:
        return [line.split()[1] for line in self.lines("done") if line.startswith("release ")]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return Site(tmp_path)


def pins(*jobs: str) -> list[Update]:
    return [Update(job, "interleave:v1;role=", ("n1", "n2"), "ilva:g0:1") for job in jobs]


async def test_many_jobs_cost_one_start_for_each_step_and_keep_their_order(site: Site) -> None:
    slurm = SlurmCommands()
    assert await slurm.update(pins("17", "18_3", "20+1")) == {}
    assert await slurm.release(["17", "18_3", "20+1"]) == {}

    what = "ReqNodeList=n1,n2 Gres=ilva:g0:1 AdminComment=interleave:v1;role="
    assert site.lines("done") == [
        *(f"update JobId={job} {what}" for job in ("17", "18_3", "20+1")),
        *(f"release {job}" for job in ("17", "18_3", "20+1")),
    ]
    assert len(site.lines("starts")) == 2


async def test_nothing_to_do_starts_nothing(site: Site) -> None:
    assert await SlurmCommands().update([]) == await SlurmCommands().release([]) == {}
    assert site.lines("starts") == []


@pytest.mark.parametrize("refused", [{0}, {4}, {8}, {2, 3}, {0, 8}, set(range(9))])
@pytest.mark.parametrize("what", ["refused", "deadly"])
async def test_those_that_fail_are_told_apart_and_all_others_are_done(
    site: Site, refused: set[int], what: str
) -> None:
    jobs = [str(17 + number) for number in range(9)]
    bad = [jobs[number] for number in sorted(refused)]
    site.at(what, *bad)

    failed = await SlurmCommands().release(jobs)

    words = "Invalid job id specified for job {}" if what == "refused" else "exit code -9"
    assert sorted(failed) == bad
    for job, error in failed.items():
        assert f"scontrol release {job}: " in str(error)
        assert words.format(job) in str(error)
    done, wanted = list(dict.fromkeys(site.released)), [job for job in jobs if job not in bad]
    assert (done if what == "refused" else sorted(done)) == wanted
    assert len(site.lines("starts")) <= 1 + len(jobs)


async def test_one_that_does_not_answer_is_ended_once_and_none_is_taken_for_done(site: Site) -> None:
    site.at("hanging", "18")

    failed = await SlurmCommands(timeout_s=0.5).release(["17", "18", "19"])

    assert sorted(failed) == ["17", "18", "19"]
    assert all("no answer within 0.5 s; is slurmctld up?" in str(error) for error in failed.values())
    assert len(site.lines("starts")) <= 1  # none, where the machine is too busy to start it in time


@pytest.mark.parametrize(
    "text", ["a b", "a\nupdate JobId=1", "'a", '"a', "a\x05b", "!r", "é", "\\", "a" * 2500]
)
async def test_a_text_that_a_line_could_garble_goes_as_an_argument(site: Site, text: str) -> None:
    put(site.folder / "scontrol", f'printf "%s\\0" "$@" > {site.folder}/$2')
    jobs = ("17", "18")

    assert await SlurmCommands().update([Update(job, text) for job in jobs]) == {}

    for job in jobs:
        told = (site.folder / f"JobId={job}").read_text().split("\0")[:-1]
        assert told == ["update", f"JobId={job}", f"AdminComment={text}"]


async def test_without_scontrol_each_job_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    failed = await SlurmCommands().release(["17", "18"])

    assert [str(error).partition(":")[0] for error in failed.values()] == [
        "scontrol release 17",
        "scontrol release 18",
    ]


class Round:
    """Placing of waiting jobs by the commands."""

    def __init__(self, timeout_s: float = 60.0) -> None:
        self.book = FakeBook(Steps())
        self.placing = Placing(SlurmCommands(timeout_s), self.book, FakeFleet(), Reports())

    async def __call__(self, *jobs: str) -> None:
        await self.placing.do(Todo(place=[self.seated(job) for job in jobs or ("17", "18", "19")]))

    def seated(self, job_id: str) -> Seated:
        comment = AdminComment(parse_group_name("g"), 1, 1)
        job = SlurmJob(job_id, frozenset({"PENDING"}), 0, "JobHeldUser", "", ())
        return Seated(Placement(job_id, "g", "", ("n1",), (0,), "ilva"), job, comment)


async def test_a_round_of_many_jobs_costs_few_starts_and_releases_the_first_before_the_last_are_pinned(
    site: Site,
) -> None:
    jobs = [str(100 + number) for number in range(80)]

    await Round()(*jobs)

    assert len(site.lines("starts")) == 2 * 3
    assert site.released == jobs
    steps = [line.partition(" ")[0] for line in site.lines("done")]
    assert steps == 2 * [*["update"] * 40, *["release"] * 40, *["update"] * 40]


@pytest.mark.parametrize("what", ["refused", "deadly"])
async def test_a_job_whose_pin_failed_is_not_released_and_the_others_are(
    site: Site, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    site.at(what, "18")

    await Round()()

    assert list(dict.fromkeys(site.released)) == ["17", "19"]
    assert not [line for line in site.lines("done") if "18" in line]
    events = [(record.message, record.__dict__["job"]) for record in caplog.records]
    assert events.count(("placement.failed", "18")) == 1
    assert [job for event, job in events if event == "placement.released"] == ["17", "19"]


async def test_with_slurmctld_away_no_job_is_released_and_the_book_keeps_all(site: Site) -> None:
    site.at("hanging", "17")
    world = Round(timeout_s=0.5)

    await world()
    assert site.released == []
    assert list(world.book.kept) == ["17", "18", "19"]

    site.at("hanging")
    await Round()()
    assert site.released == ["17", "18", "19"]


async def test_a_job_that_is_not_released_does_not_say_that_it_is(site: Site) -> None:
    put(site.folder / "scontrol", SCONTROL.replace("job=$2;", "job=$1-$2;"))
    site.at("refused", "release-18")

    await Round()()

    noted = [line.split()[1] for line in site.lines("done") if "state=released" in line]
    assert noted == ["JobId=17", "JobId=19"]
    assert site.released[-1] != "18"
