from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from pathlib import Path

import numpy as np
import pytest

from slurm_interleave.client.core.states import Context
from slurm_interleave.client.sim import SimDevice
from slurm_interleave.client.sim.arena import Arena
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.backends.noop import NoopBackend
from slurm_interleave.node_agent.backends.sim import SimBackend
from slurm_interleave.node_agent.images import Image, Images
from tests.node_agent.fakes import (
    FakeOrchestrator,
    config,
    environment,
    eventually,
    hook,
    running,
    start_job,
    until,
)

MIB = 1 << 20
OURS = f"{os.getpid()}000"  # no process of another test run on this host has this job id


def device(sim: SimConfig, job: str = "17") -> SimDevice:
    return SimDevice(Arena.open(sim.directory), 0, job)


async def test_hello_tells_the_devices_and_their_names(
    folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    async with running(config(folder, orchestrator.address), sim, SimBackend("n1", sim)):
        hello = await orchestrator.hears("hello")

    assert hello.node == "n1"
    assert [(d.index, d.uuid, d.memory_bytes) for d in hello.devices] == [
        (0, "SIM-n1-0", 8 * MIB),
        (1, "SIM-n1-1", 8 * MIB),
    ]


async def test_a_job_start_registers_the_job_and_makes_its_environment(
    agent: Agent, folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    reply = await start_job(folder, role="trainer", devices=[1, 0])
    started = await orchestrator.hears("started")
    variables = environment(folder)

    assert reply["ok"] is True
    assert (started.job_id, started.group, started.role, started.user) == ("17", "demo", "trainer", "alice")
    assert (list(started.devices), started.context) == ([0, 1], "none")
    assert started.token_sha256 == hashlib.sha256(variables["INTERLEAVE_TOKEN"].encode()).digest()
    assert variables["CUDA_VISIBLE_DEVICES"] == "SIM-n1-0,SIM-n1-1"
    assert variables["SLURM_GPUS_ON_NODE"] == "2"
    assert variables["INTERLEAVE_SIM_DIR"] == str(sim.directory)
    assert variables["INTERLEAVE_ORCHESTRATOR"] == orchestrator.address
    assert variables["TIMESLICE_TRAINER_GROUP"] == "demo"


async def test_a_jobs_files_are_closed_to_others(agent: Agent, folder: Path) -> None:
    await start_job(folder)
    job = folder / "run" / "jobs" / "17"

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (job, *job.iterdir())}

    assert modes == {"17": 0o711, "environment": 0o600, "socket": 0o600}


async def test_devices_that_slurm_did_not_name_come_from_the_reservation(
    agent: Agent, folder: Path, orchestrator: FakeOrchestrator
) -> None:
    reservation = pb.Reservation(job_id="17", group="other", devices=[1], nodes=["n1", "n2"])
    orchestrator.reservations = [reservation]
    await agent._link.connected.wait()

    await start_job(folder, devices=None, group="")
    started = await orchestrator.hears("started")

    assert (list(started.devices), started.group, list(started.nodes)) == ([1], "other", ["n1", "n2"])


async def test_the_group_of_the_reservation_counts_whatever_the_prolog_was_told(
    agent: Agent, folder: Path, orchestrator: FakeOrchestrator
) -> None:
    orchestrator.reservations = [pb.Reservation(job_id="17", group="mine", role="trainer", devices=[1])]
    await agent._link.connected.wait()

    await start_job(folder, devices=None, group="theirs", role="")
    started = await orchestrator.hears("started")

    assert (started.group, started.role) == ("mine", "trainer")


async def test_backend_and_longest_wait_of_the_submission_reach_the_job(
    agent: Agent, folder: Path, orchestrator: FakeOrchestrator
) -> None:
    await start_job(folder, backend="app_channel+sim", max_wait="600")
    started = await orchestrator.hears("started")

    variables = environment(folder)
    assert started.backend == variables["INTERLEAVE_BACKEND"] == "app_channel+sim"
    assert variables["INTERLEAVE_MAX_WAIT"] == "600"


async def test_profile_and_slowdown_of_the_submission_reach_the_job_and_the_orchestrator(
    agent: Agent, folder: Path, orchestrator: FakeOrchestrator
) -> None:
    await start_job(folder, profile="math-7B", max_slowdown="0")
    started = await orchestrator.hears("started")

    variables = environment(folder)
    assert started.profile == variables["INTERLEAVE_PROFILE"] == "math-7B"
    assert (started.HasField("max_slowdown"), started.max_slowdown) == (True, 0)
    assert variables["INTERLEAVE_MAX_SLOWDOWN"] == "0"


@pytest.mark.parametrize(
    "wrong",
    [
        {"backend": "magic"},
        {"max_wait": "soon"},
        {"max_wait": "-1"},
        {"profile": "a b"},
        {"max_slowdown": "x"},
    ],
)
async def test_a_submission_that_this_node_cannot_serve_is_refused(
    agent: Agent, folder: Path, wrong: dict[str, str]
) -> None:
    reply = await start_job(folder, **wrong)

    assert (reply["ok"], wrong.keys() & set(str(reply["error"]).replace(":", " ").split())) == (
        False,
        {*wrong},
    )


async def test_a_reservation_outlives_the_orchestrator_and_the_agent(
    folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    orchestrator.reservations = [pb.Reservation(job_id="17", group="demo", devices=[1])]
    where = config(folder, orchestrator.address)
    async with running(where, sim, SimBackend("n1", sim)) as first:
        await first._link.connected.wait()  # so the reservation has arrived
    await orchestrator.stop()

    async with running(where, sim, SimBackend("n1", sim)):
        reply = await start_job(folder, devices=None)

    assert reply["ok"] is True
    assert environment(folder)["CUDA_VISIBLE_DEVICES"] == "SIM-n1-1"


async def test_a_reservation_that_a_start_has_taken_is_not_taken_by_the_next_without_the_orchestrator(
    folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    orchestrator.reservations = [pb.Reservation(job_id=OURS, group="demo", devices=[1])]
    where = config(folder, orchestrator.address)
    async with running(where, sim, SimBackend("n1", sim)) as first:
        await first._link.connected.wait()
        await start_job(folder, OURS, devices=None)
    await orchestrator.stop()

    async with running(where, sim, SimBackend("n1", sim)) as second:
        twice = await start_job(folder, OURS, devices=None)
        await hook(folder, verb="job-end", job=OURS)
        stale = await start_job(folder, OURS, devices=None)
        requeued = await start_job(folder, OURS, devices=None, restarts=1)
        orchestrator.reservations = [pb.Reservation(job_id=OURS, group="demo", devices=[0])]
        await orchestrator.start()
        await second._link.connected.wait()
        fresh = await start_job(folder, OURS, devices=None, restarts=1)

    assert twice["ok"] is True, "it is the same start"
    assert stale["ok"] is requeued["ok"] is False
    assert "requeue the job when it does" in stale["error"]
    assert fresh["ok"] is True
    assert environment(folder, OURS)["CUDA_VISIBLE_DEVICES"] == "SIM-n1-0"


async def test_a_start_asks_for_the_devices_that_the_job_has_got_since(
    agent: Agent, folder: Path, orchestrator: FakeOrchestrator
) -> None:
    await agent._link.connected.wait()
    orchestrator.orders(reserve=pb.Reservation(job_id="17", group="demo", devices=[1]))

    async def heard() -> bool:
        return "17" in agent._state.reservations

    await eventually(heard)
    orchestrator.reservations = [pb.Reservation(job_id="17", group="demo", devices=[0])]

    await start_job(folder, devices=None)

    assert (await orchestrator.hears("starting")).job_id == "17"
    assert list((await orchestrator.hears("started")).devices) == [0]


async def test_a_reservation_that_was_on_its_way_is_no_answer_to_the_question_of_a_start(
    agent: Agent, folder: Path, orchestrator: FakeOrchestrator
) -> None:
    """It may be that of the run before."""
    await agent._link.connected.wait()
    orchestrator.on_its_way = [pb.Reservation(job_id="17", group="demo", devices=[1])]
    orchestrator.reservations = [pb.Reservation(job_id="17", group="demo", devices=[0])]

    await start_job(folder, devices=None)

    assert list((await orchestrator.hears("started")).devices) == [0]


async def test_a_start_without_devices_says_what_to_do(
    folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    await orchestrator.stop()
    async with running(config(folder, orchestrator.address), sim, SimBackend("n1", sim)):
        reply = await start_job(folder, devices=None)

    assert reply["ok"] is False
    assert reply["error"].startswith("node n1: job 17: neither Slurm nor the orchestrator named its devices")
    assert "requeue" in reply["error"]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"group": "bad name"}, "group name 'bad name' is not allowed"),
        ({"devices": [7]}, "there is no device 7; there are 2, from 0"),
        ({"uid": "alice"}, "uid: 'alice' is not a whole number"),
        ({"job": "../x"}, "job id '../x' is not allowed"),
        ({"role": "a\nB=c"}, "role 'a\\nB=c' is not allowed"),
    ],
)
async def test_a_start_that_makes_no_sense_is_refused(
    agent: Agent, folder: Path, wrong: dict[str, object], text: str
) -> None:
    reply = await start_job(folder, **wrong)  # type: ignore[arg-type]

    assert reply["ok"] is False
    assert text in reply["error"]


async def test_a_start_twice_is_one_attempt(
    agent: Agent, folder: Path, orchestrator: FakeOrchestrator
) -> None:
    await start_job(folder, OURS)
    first = await orchestrator.hears("started")
    await start_job(folder, OURS)
    second = await orchestrator.hears("started")

    assert first.attempt == second.attempt


async def test_a_start_after_the_job_ran_is_a_clean_new_attempt(
    agent: Agent, folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    await start_job(folder, OURS)
    first = await orchestrator.hears("started")
    token = environment(folder, OURS)["INTERLEAVE_TOKEN"]
    device(sim, OURS).put(np.zeros(100))
    await orchestrator.asks("SNAPSHOT", OURS, "1-1")

    await start_job(folder, OURS)
    over, second = await orchestrator.hears("over"), await orchestrator.hears("started")

    assert over.attempt == first.attempt != second.attempt
    assert second.context == "none"
    assert environment(folder, OURS)["INTERLEAVE_TOKEN"] != token


async def test_a_job_whose_processes_were_saved_starts_with_a_token_of_its_own(
    folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    """By the one that these know it would be taken for its run before, where that is still in the books."""
    images = Images(folder / "images")
    images.begin(OURS)
    images.finish(Image(OURS, 0, "demo", "token of before", 4711, {}))
    settings = config(folder, orchestrator.address, image_dir=str(folder / "images"))

    async with running(settings, sim, SimBackend("n1", sim)):
        await start_job(folder, OURS)
        started, variables = await orchestrator.hears("started"), environment(folder, OURS)

    assert variables["INTERLEAVE_RESUME"] == "1"
    assert variables["INTERLEAVE_TOKEN"] != "token of before"
    assert started.token_sha256 == hashlib.sha256(variables["INTERLEAVE_TOKEN"].encode()).digest()
    assert started.resumed_token_sha256 == b""


async def test_a_start_after_slurm_put_the_job_back_is_a_new_attempt_that_says_when_it_began(
    agent: Agent, folder: Path, orchestrator: FakeOrchestrator
) -> None:
    before = time.time()
    await start_job(folder, restarts="0")
    first = await orchestrator.hears("started")
    await start_job(folder)  # by a step, which does not know
    again = await orchestrator.hears("started")
    await start_job(folder, restarts="1")
    over, second = await orchestrator.hears("over"), await orchestrator.hears("started")

    assert first.attempt == again.attempt == over.attempt != second.attempt
    assert (first.restarts, again.restarts, second.restarts) == (0, 0, 1)
    assert before <= first.started == again.started < second.started <= time.time()


async def test_an_end_leaves_nothing(
    agent: Agent, folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    await start_job(folder)
    started = await orchestrator.hears("started")
    device(sim).put(np.zeros(1000))

    reply = await hook(folder, verb="job-end", job="17")
    over = await orchestrator.hears("over")

    assert reply == {"ok": True}
    assert (over.job_id, over.attempt) == ("17", started.attempt)
    assert device(sim).used_bytes == 0
    assert list((folder / "run" / "jobs").iterdir()) == []
    assert json.loads((folder / "state" / "agent.json").read_text())["jobs"] == []


async def test_an_end_of_an_unknown_job_or_a_second_end_is_fine(agent: Agent, folder: Path) -> None:
    assert await hook(folder, verb="job-end", job="99") == {"ok": True}
    await start_job(folder)
    assert await hook(folder, verb="job-end", job="17") == {"ok": True}
    assert await hook(folder, verb="job-end", job="17") == {"ok": True}


async def test_after_an_outage_the_whole_truth_is_told_and_results_are_not_lost(
    agent: Agent, folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    await start_job(folder)
    device(sim).put(np.zeros(100))
    await orchestrator.asks("SNAPSHOT", "17", "1-1")
    await orchestrator.stop()
    await start_job(folder, "18")

    await orchestrator.start()
    hello = await orchestrator.hears("hello")
    again = await orchestrator.asks("SNAPSHOT", "17", "1-1")

    assert [(job.job_id, job.context, job.bytes) for job in hello.jobs] == [
        ("17", "saved", 4096),
        ("18", "none", 0),
    ]
    assert again.ok


async def test_a_result_that_could_not_be_sent_follows_the_next_hello(
    folder: Path, orchestrator: FakeOrchestrator
) -> None:
    sim = SimConfig(directory=folder / "sim", memory_mib=8, snapshot_gib_s=0.02)
    async with running(config(folder, orchestrator.address), sim, SimBackend("n1", sim)):
        await orchestrator.hears("hello")
        await start_job(folder)
        device(sim).empty(4 * MIB, np.uint8)
        orchestrator.operate("SNAPSHOT", "17", "1-1")
        await until(sim, Context.SAVING)
        await orchestrator.stop()
        await until(sim, Context.SAVED)

        await orchestrator.start()
        hello = await orchestrator.hears("hello")
        done = await orchestrator.hears("done")

    assert hello.jobs[0].context == "saved"
    assert (done.operation_id, done.ok) == ("1-1", True)


async def test_the_noop_backend_says_done(
    folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    where = config(folder, orchestrator.address, backend="noop")
    async with running(where, sim, NoopBackend("n1", 2)):
        await start_job(folder)
        saved = await orchestrator.asks("SNAPSHOT", "17", "1-1")
        back = await orchestrator.asks("RESTORE", "17", "1-2")

    assert [(d.ok, d.context) for d in (saved, back)] == [(True, "saved"), (True, "resident")]
    assert environment(folder)["CUDA_VISIBLE_DEVICES"] == "NOOP-n1-0"
