"""Real processes of one job on two nodes, without torch: rank 0 leads, or each of them asks."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from lab import LocalLab
from lab.processes import wait_until
from slurm_interleave.client.connect import ClientConfig, open_channel
from slurm_interleave.client.core.config import load_section
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc

pytestmark = pytest.mark.timeout(90)

NODES = ("local", "other")
RANKS = 4
CONFIG = {"groups.wide": {"nodes": list(NODES), "devices": [0]}, "turns": {"linger_s": 0.0}}
HEAD = """
import os, sys, time
from slurm_interleave.client import Interleaver, JobRanks
rank = int(os.environ.get("SLURM_PROCID", "0"))
def tell(what):
    print(time.monotonic_ns(), what, flush=True)
"""
# Each rank but the first is late, and later the higher it is.
LED = """
ranks = JobRanks.from_env()
for step in range(int(sys.argv[1])):
    with ranks.turn(f"step {step}"):
        tell("begins")
        time.sleep(0.03 * rank)
        tell("ends")
ranks.close()
tell("done")
"""
FAILS = """
ranks = JobRanks.from_env()
try:
    with ranks.turn("train"):
        if rank == 2:
            raise ValueError("not a number")
        time.sleep(0.02 * rank)
except Exception as error:
    tell(f"{type(error).__name__}: {error}")
with ranks.turn("again"):
    tell("goes on")
ranks.close()
"""
EACH = """
mine, ranks = Interleaver.from_env(), JobRanks.from_env()
for step in range(int(sys.argv[1])):
    with mine.turn("train") as lease:
        tell(f"epoch {lease.epoch}")
        tell("begins")
        time.sleep(0.03 * rank)
        tell("ends")
        ranks.barrier()  # or the last to be told yields under the hands of others
    ranks.barrier()  # or one that is told of the same lease again keeps it
mine.close()
ranks.close()
tell("done")
"""
ALONE = """
mine = Interleaver.from_env()
for step in range(int(sys.argv[1])):
    with mine.turn("other"):
        tell("begins")
        time.sleep(0.02)
        tell("ends")
mine.close()
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[LocalLab]:
    with LocalLab.start(config=CONFIG, nodes=NODES) as started:
        yield started


def start(
    lab: LocalLab, code: str, job: str, rank: int, ranks: int, *arguments: str
) -> subprocess.Popen[str]:
    """Start a rank as `srun` would, on the first node or, the upper half of them, on the second."""
    node = NODES[rank * len(NODES) // ranks]
    environ = {
        **lab.env,
        "INTERLEAVE_GROUP": "wide",
        "INTERLEAVE_JOB": job,
        "INTERLEAVE_NODES": ",".join(NODES if ranks > 1 else NODES[:1]),
        "INTERLEAVE_CLIENT_AGENT_SOCKET": str(lab.root / "run" / node / "register.sock"),
        "SLURM_PROCID": str(rank),
        "SLURM_STEP_NUM_TASKS": str(ranks),
        "SLURM_STEP_ID": "0",
    }
    pipe = subprocess.PIPE
    argv = [sys.executable, "-c", HEAD + code, *arguments]
    return subprocess.Popen(argv, env=environ, stdout=pipe, stderr=pipe, text=True)


def ends(processes: list[subprocess.Popen[str]]) -> list[list[tuple[int, str]]]:
    """Return what each one has told, once all have ended well."""
    told = []
    for process in processes:
        out, error = process.communicate(timeout=60)
        assert process.returncode == 0, error
        told.append([(int(at), what) for at, _, what in (line.partition(" ") for line in out.splitlines())])
    return told


def gang(lab: LocalLab, code: str, job: str, *arguments: str) -> list[subprocess.Popen[str]]:
    return [start(lab, code, job, rank, RANKS, *arguments) for rank in range(RANKS)]


def spans(told: list[tuple[int, str]]) -> list[tuple[int, int]]:
    times = [at for at, what in told if what in ("begins", "ends")]
    return list(zip(times[::2], times[1::2], strict=True))


def slices(lab: LocalLab) -> list[pb.Slice]:
    client = load_section(ClientConfig, "client", lab.config)
    with open_channel(client.orchestrator) as channel:
        stub: Any = rpc.InterleaveStub(channel)
        pages = stub.ListSlices(pb.ListSlicesRequest(), wait_for_ready=True)
        return [row for page in pages for row in page.slices]


def never_together(told: Mapping[str, list[list[tuple[int, str]]]]) -> bool:
    """Tell whether no two jobs have worked at the same time."""
    every = sorted(
        (begin, end, job) for job, all_of in told.items() for one in all_of for begin, end in spans(one)
    )
    last: dict[str, int] = {}
    for begin, end, job in every:
        if any(begin < until for other, until in last.items() if other != job):
            return False
        last[job] = max(last.get(job, 0), end)
    return True


@pytest.mark.parametrize("code", [LED, EACH], ids=["rank 0 acquires", "each rank asks"])
def test_ranks_on_two_nodes_work_within_the_turns_of_their_job_alone(lab: LocalLab, code: str) -> None:
    steps, name = 5, "led" if code is LED else "each"
    ranks = gang(lab, code, name, str(steps))
    partner = start(lab, ALONE, f"{name}-partner", 0, 1, str(2 * steps))

    told = {"ranks": ends(ranks), "partner": ends([partner])}

    assert [len(spans(one)) for one in told["ranks"]] == [steps] * RANKS
    assert never_together(told)
    if code is EACH:
        epochs = [[what for _, what in one if what.startswith("epoch")] for one in told["ranks"]]
        assert all(each == epochs[0] for each in epochs)
    mine = [row for row in slices(lab) if row.job_id.endswith(name)]
    assert len(mine) == steps
    assert {row.nodes for row in mine} == {"local,other"}


def test_what_one_rank_fails_with_ends_the_turn_of_all_and_the_next_turn_is_whole(lab: LocalLab) -> None:
    told = ends(gang(lab, FAILS, "fails"))

    says = [what for _, what in (line for one in told for line in one)]
    assert says.count("goes on") == RANKS
    assert says.count("ValueError: not a number") == 1
    for rank in (0, 1, 3):
        assert told[rank][0][1] == f"InterleaveError: rank {rank}: rank 2 failed: not a number"


def test_an_orchestrator_that_is_killed_while_ranks_meet_loses_none(lab: LocalLab) -> None:
    ranks = gang(lab, LED, "killed", "30")
    try:
        for _ in range(3):
            enough = len(slices(lab)) + 3
            assert wait_until(lambda enough=enough: len(slices(lab)) >= enough, 60)
            lab.kill9("interleaved")
            time.sleep(0.2)  # all of them meet an orchestrator that is away
            lab.start_again("interleaved")

        told = ends(ranks)
    finally:
        for process in ranks:
            process.kill()

    assert [len(spans(one)) for one in told] == [30] * RANKS


def test_a_rank_alone_needs_nobody(lab: LocalLab) -> None:
    [told] = ends([start(lab, LED, "alone", 0, 1, "2")])

    assert [what for _, what in told] == ["begins", "ends"] * 2 + ["done"]
