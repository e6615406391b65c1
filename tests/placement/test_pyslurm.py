"""Slurm through pyslurm: a stand-in with the real one's names, in a process of its own as the real one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from slurm_interleave.client.core.errors import ConfigError, SlurmFailed
from slurm_interleave.orchestrator.placement.gateway import Gateway, by_group, choose
from slurm_interleave.orchestrator.placement.ports import Update
from slurm_interleave.orchestrator.placement.reservations import Reservation
from slurm_interleave.orchestrator.placement.squeue import SlurmJob
from tests.placement.test_slurm import put

HERE = Path(__file__).parent
PATIENT_S = 60.0  # a busy machine starts a Python slowly
NOTE = "interleave:v1;group=g;nodes=1;devices=1;role=;state=held"
HELD = {
    "id": 17,
    "state": "PENDING",
    "priority": 0,
    "state_reason": "JobHeldUser",
    "admin_comment": NOTE,
    "account": "physics",
    "requeue_count": 0,
    "required_nodes": "n[1-2]",
    "max_nodes": 2,
    "gres_per_node": {"gres/ilva:g0": 1, "gres/ilva:g1": 1},
    "time_limit": 90,
    "user_id": 1000,
}


class Site:
    """A machine with commands of Slurm and with pyslurm: what is said by each, and what each was told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.release("slurm 25.11.2")
        put(folder / "scontrol", f'printf "%s " "$@" >> {folder}/told; echo >> {folder}/told')
        self.given: dict[str, Any] = {}
        self.has()

    def release(self, text: str) -> None:
        put(self.folder / "sinfo", f'echo "{text}"')

    def has(self, **given: Any) -> None:
        self.given = {**self.given, **given}
        (self.folder / "state.json").write_text(json.dumps(self.given))

    @property
    def told_pyslurm(self) -> list[Any]:
        log = self.folder / "state.log"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    @property
    def told_commands(self) -> list[str]:
        told = self.folder / "told"
        return [line.strip() for line in told.read_text().splitlines()] if told.exists() else []


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("PYTHONPATH", str(HERE / "standin"))
    monkeypatch.syspath_prepend(HERE / "standin")
    monkeypatch.setenv("PYSLURM_STANDIN", str(tmp_path / "state.json"))
    return Site(tmp_path)


@pytest.fixture
async def chosen(site: Site) -> AsyncIterator[Gateway]:
    site.has(jobs=[HELD])
    found = await choose("auto", PATIENT_S)
    yield found
    await found.close()


async def test_where_it_is_installed_and_fits_pyslurm_is_chosen(chosen: Gateway) -> None:
    assert (chosen.name, chosen.why) == ("pyslurm", "pyslurm 25.11.2 fits this Slurm")


@pytest.mark.parametrize(
    ("given", "release", "why"),
    [
        ({}, "slurm-wlm 22.05.8", "pyslurm 25.11.2 is for another Slurm than 22.05"),
        ({"version": "24.11.0"}, "slurm 25.11.2", "pyslurm 24.11.0 is for another Slurm than 25.11"),
        ({"fatal": "fatal: no slurm.conf"}, "slurm 25.11.2", "): fatal: no slurm.conf"),
        ({}, "nothing to say", "'nothing to say' holds no Slurm release"),
    ],
)
async def test_else_the_commands_are_and_it_is_said_why(
    site: Site, given: dict[str, Any], release: str, why: str
) -> None:
    site.has(**given)
    site.release(release)

    found = await choose("auto", PATIENT_S)

    assert found.name == "commands"
    assert why in found.why
    with pytest.raises(ConfigError, match=r"gateway = .pyslurm.: "):
        await choose("pyslurm", PATIENT_S)
    assert (await choose("commands")).why == "as configured"


async def test_without_pyslurm_no_process_is_started_for_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)

    assert (await choose("auto", PATIENT_S)).why == "pyslurm is not installed"


async def test_a_job_is_read_as_squeue_would_have_it(chosen: Gateway) -> None:
    [job] = await chosen.slurm.jobs()

    assert job == SlurmJob(
        "17",
        frozenset({"PENDING"}),
        0,
        "JobHeldUser",
        NOTE,
        (),
        account="physics",
        max_nodes=2,
        pinned=("n1", "n2"),
        gres=frozenset({"ilva:g0:1", "ilva:g1:1"}),
        limit_min=90,
        uid=1000,
    )
    assert job.held
    assert await chosen.slurm.job("17") == job
    assert by_group([job]) == {"g": [job]}


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ({"array_id": 17, "array_tasks_waiting": "0-3,7"}, "17_[0-3,7]"),
        ({"array_id": 17, "array_task_id": 4}, "17_4"),
        ({"array_id": 17, "array_task_id": None}, "17_0"),  # pyslurm says None for number 0
        ({"array_id": 17, "array_tasks_waiting": "9"}, "17_9"),
        ({"heterogeneous_id": 17}, "17+0"),
        ({"heterogeneous_id": 16}, "17"),
    ],
)
async def test_a_record_has_the_name_that_scontrol_knows_it_by(
    site: Site, raw: dict[str, Any], name: str
) -> None:
    site.has(jobs=[{**HELD, **raw}])
    found = await choose("auto", PATIENT_S)

    [job] = await found.slurm.jobs()
    await found.close()
    assert job.name == name


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("REQUEUE_HOLD", "pending"),
        ("SPECIAL_EXIT", "pending"),
        ("COMPLETING", "started"),
        ("STAGE_OUT", "started"),
        ("STOPPED", "has_processes"),
        ("CANCELLED", "finished"),
        ("REVOKED", "finished"),
    ],
)
async def test_the_one_word_for_a_state_means_what_the_words_of_squeue_mean(
    site: Site, state: str, said: str
) -> None:
    site.has(jobs=[{**HELD, "state": state}])
    found = await choose("auto", PATIENT_S)

    [job] = await found.slurm.jobs()
    await found.close()
    assert getattr(job, said)


@pytest.mark.parametrize(
    ("parsed", "waits"),
    [
        (None, ""),
        ({"afterok": [], "singleton": False, "satisfy": "all"}, ""),
        ({"afterok": [3, 4], "afterany": [], "singleton": False, "satisfy": "all"}, "afterok:3:4"),
        ({"afterok": [], "singleton": True, "satisfy": "all"}, "singleton"),
    ],
)
async def test_a_dependency_counts_as_long_as_there_is_a_job_to_wait_for(
    site: Site, parsed: dict[str, Any] | None, waits: str
) -> None:
    site.has(jobs=[{**HELD, "dependencies": parsed}])
    found = await choose("auto", PATIENT_S)

    [job] = await found.slurm.jobs()
    await found.close()
    assert job.dependency == waits


async def test_what_pyslurm_can_change_it_changes_and_the_commands_do_the_rest(
    site: Site, chosen: Gateway
) -> None:
    slurm = chosen.slurm
    await slurm.update([Update("17", "placed", ("n1",), "ilva:g0:1")])
    await slurm.release(["17"])
    await slurm.update([Update("17", "released")])
    await slurm.hold("17")
    await slurm.requeue("17")
    await slurm.update([Update("17_3", "placed", ("n1",), "ilva:g0:1"), Update("17_4", "x")])
    await slurm.release(["17_3"])
    await slurm.unpin("17")
    await slurm.update([Update("17", "x", ("n1",), count=1)])

    change = {"required_nodes": ["n1"], "gres_per_node": "ilva:g0:1", "admin_comment": "placed"}
    assert site.told_pyslurm == [
        ["modify", 17, change],
        ["release", 17, None],
        ["modify", 17, {"admin_comment": "released"}],
        ["hold", 17, None],
        ["requeue", 17, False],
    ]
    assert site.told_commands == [
        "update JobId=17_3 ReqNodeList=n1 Gres=ilva:g0:1 AdminComment=placed",
        "update JobId=17_4 AdminComment=x",
        "release 17_3",
        "update JobId=17 ReqNodeList=",
        "update JobId=17 ReqNodeList=n1 NumNodes=1-1 AdminComment=x",
    ]


async def test_a_task_of_an_array_is_looked_up_by_its_name_and_not_as_a_number(
    site: Site, chosen: Gateway
) -> None:
    put(site.folder / "squeue", "[ $1 = --version ] && echo slurm 25.11.2 && exit; echo '{\"jobs\": []}'")

    with pytest.raises(SlurmFailed, match="squeue: job 1_7 is not known"):
        await chosen.slurm.job("1_7")


async def test_a_refusal_comes_with_slurms_words_and_the_next_call_is_answered(chosen: Gateway) -> None:
    refused = "RPCError: Invalid job id specified"
    with pytest.raises(SlurmFailed, match=f"pyslurm: requeue 99: {refused}"):
        await chosen.slurm.requeue("99")
    failed = {
        **await chosen.slurm.update([Update("98", "x"), Update("17", "x")]),
        **await chosen.slurm.release(["99", "17"]),
    }

    assert {job: str(error) for job, error in failed.items()} == {
        "98": f"pyslurm: update 98: {refused}",
        "99": f"pyslurm: release 99: {refused}",
    }
    assert len(await chosen.slurm.jobs()) == 1


async def test_nodes_and_reservations_are_read(site: Site) -> None:
    site.has(
        nodes=[{"name": "n1", "state": "IDLE+DRAIN"}, {"name": "n2", "state": "DOWN*"}],
        reservations=[{"name": "maint", "nodes": "n[1-2]", "is_active": True}],
    )
    found = await choose("auto", PATIENT_S)

    assert await found.slurm.node_states() == {"n1": "idle+drain", "n2": "down*"}
    assert await found.slurm.reservations() == [Reservation("maint", ("n1", "n2"), active=True)]
    await found.close()


async def test_a_process_that_dies_fails_one_call_and_another_is_started_for_the_next(
    site: Site, chosen: Gateway
) -> None:
    await chosen.close()
    site.has(dies="jobs")
    with pytest.raises(SlurmFailed, match=r"pyslurm: jobs: .*exit code \d+\): fatal: slurmctld sent garbage"):
        await chosen.slurm.jobs()

    site.has(dies="")
    assert len(await chosen.slurm.jobs()) == 1


async def test_a_call_that_hangs_is_ended_and_leaves_no_answer_for_the_next(site: Site) -> None:
    site.has(jobs=[HELD], hangs="job")
    found = await choose("auto", PATIENT_S)
    assert found.worker is not None
    found.worker._timeout_s = 0.2
    with pytest.raises(SlurmFailed, match=r"pyslurm: job 17: no answer within 0\.2 s"):
        await found.slurm.job("17")

    found.worker._timeout_s = PATIENT_S
    assert [job.job_id for job in await found.slurm.jobs()] == ["17"]
    await found.close()
