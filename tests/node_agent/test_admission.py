"""Whether a snapshot fits in host memory: the decision, and what is read from trees of proc and cgroups."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.client.core.states import Context
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.node_agent import host_memory
from slurm_interleave.node_agent.admission import GIB, Disk, Limit, Need, Node, refusal
from slurm_interleave.node_agent.backends.noop import NoopBackend
from slurm_interleave.node_agent.backends.protocol import Charge
from slurm_interleave.node_agent.backends.sim import SimBackend
from slurm_interleave.node_agent.config import AgentConfig
from slurm_interleave.node_agent.contexts import JobContext
from slurm_interleave.node_agent.host_room import HostRoom
from slurm_interleave.node_agent.state import Job, Request, State
from tests.node_agent.fakes import FakeOrchestrator, config, device_of, running, start_job

NODE = Node(total=100 * GIB, available=60 * GIB)


def need(size: int, fresh: int | None = None, *, job: bool = True) -> Need:
    return Need(size * GIB, (size if fresh is None else fresh) * GIB, charged_to_job=job)


def limit(free: int, reclaimable: int = 0) -> Limit:
    return Limit("/job_17", 100 * GIB, (100 - free + reclaimable) * GIB, reclaimable * GIB)


def test_what_fits_everywhere_is_admitted() -> None:
    assert refusal(need(20), [limit(21)], NODE, cap_bytes=20 * GIB) == ""


def test_cache_that_can_be_reclaimed_is_free() -> None:
    assert refusal(need(20), [limit(21, reclaimable=21)], NODE) == ""


def test_a_refusal_by_the_job_has_its_numbers_and_what_to_ask_for() -> None:
    assert refusal(need(20), [limit(50), limit(10, reclaimable=2)], NODE) == (
        "21.0 GiB do not fit in the job's memory: of its 100.0 GiB are 92.0 GiB in use, 2.0 GiB of that as "
        "cache (/job_17); ask for at least 11.0 GiB more with --mem"
    )


def test_a_refusal_by_the_node_has_its_numbers() -> None:
    crowded = Node(100 * GIB, 60 * GIB, promised=39 * GIB)

    assert refusal(need(20), [], crowded) == (
        "20.0 GiB do not fit in host memory: of the node's 100.0 GiB are 60.0 GiB available, "
        "39.0 GiB promised to other snapshots, and 2.0 GiB are kept free"
    )
    assert refusal(need(19), [], crowded) == ""


def test_a_refusal_by_the_site_has_its_numbers() -> None:
    assert refusal(need(20), [], NODE, cap_bytes=50 * GIB, saved_bytes=31 * GIB) == (
        "20.0 GiB do not fit in host memory: of host_memory_gib = 50 for saved state on this node "
        "31.0 GiB are taken"
    )


def test_what_is_set_aside_counts_for_the_site_alone() -> None:
    full = Node(100 * GIB, 0)

    assert refusal(need(20, fresh=0), [limit(0)], Node(100 * GIB, 2 * GIB), cap_bytes=20 * GIB) == ""
    assert refusal(need(20, fresh=1), [], full)
    assert refusal(need(20, fresh=0), [], Node(100 * GIB, 3 * GIB), cap_bytes=19 * GIB)


def test_what_the_agent_keeps_is_not_the_jobs() -> None:
    assert refusal(need(20, job=False), [limit(0)], NODE) == ""


@given(st.integers(0, 200), st.integers(0, 200), st.integers(0, 100), st.integers(0, 100))
def test_what_is_admitted_fits(size: int, free: int, available: int, promised: int) -> None:
    node = Node(100 * GIB, available * GIB, promised * GIB)

    if not refusal(need(size), [limit(free)], node):
        assert size <= min(free, available - promised)


def process(proc: Path, pid: int, *lines: str) -> None:
    (proc / str(pid)).mkdir(parents=True)
    (proc / str(pid) / "cgroup").write_text("".join(f"{line}\n" for line in lines))


def group(path: Path, values: dict[str, str], **stat: int) -> None:
    path.mkdir(parents=True, exist_ok=True)
    for name, value in values.items():
        (path / f"memory.{name}").write_text(f"{value}\n")
    (path / "memory.stat").write_text("".join(f"{name} {size}\n" for name, size in stat.items()))


@pytest.fixture
def v2(tmp_path: Path) -> Path:
    """A node with cgroups v2: a job with a limit, and a step with a smaller one."""
    proc, tree = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "mountinfo").write_text(
        f"30 24 0:26 / {tree} rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
        "31 24 0:27 / /tmp rw - tmpfs tmpfs rw\n"
    )
    scope = tree / "system.slice" / "n1_slurmstepd.scope"
    job = scope / "job_17"
    group(tree, {})
    group(scope.parent, {"max": "max", "current": "5"})
    group(
        job,
        {"max": "1000", "current": "700"},
        inactive_file=50,
        active_file=30,
        shmem=400,
        slab_reclaimable=5,
    )
    group(job / "step_0", {"max": "100", "current": "50"}, inactive_file=1)
    group(job / "step_1", {"max": "200", "current": "50"})
    where = "0::/system.slice/n1_slurmstepd.scope/job_17"
    process(proc, 101, f"{where}/step_0/user/task_0")
    process(proc, 102, f"{where}/step_0/user/task_1")
    process(proc, 103, f"{where}/step_1/user/task_0")
    return proc


def test_a_jobs_limits_are_those_that_all_its_processes_are_below(v2: Path, tmp_path: Path) -> None:
    job = tmp_path / "cgroup/system.slice/n1_slurmstepd.scope/job_17"
    whole = Limit(str(job), 1000, 700, 85)

    assert host_memory.of_job([101, 103], v2) == [whole]
    assert host_memory.of_job([101, 102, 999], v2) == [Limit(str(job / "step_0"), 100, 50, 1), whole]
    assert host_memory.of_job([], v2) == []
    assert whole.free == 385


def test_cgroups_v1_are_read_too(tmp_path: Path) -> None:
    proc, tree = tmp_path / "proc", tmp_path / "memory"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "mountinfo").write_text(
        f"31 24 0:27 / {tmp_path}/unified rw - cgroup2 cgroup2 rw\n"
        f"33 24 0:29 / {tmp_path}/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        f"34 24 0:30 / {tree} rw,relatime shared:9 - cgroup cgroup rw,memory\n"
    )
    job = tree / "slurm/uid_0/job_17"
    group(tree, {"limit_in_bytes": str((1 << 63) - 4096), "usage_in_bytes": "1"})
    group(job, {"limit_in_bytes": "1000", "usage_in_bytes": "700"}, inactive_file=1, total_inactive_file=9)
    process(proc, 101, "9:cpu,cpuacct:/slurm/uid_0/job_17", "4:memory:/slurm/uid_0/job_17/step_0", "0::/")

    assert host_memory.of_job([101], proc) == [Limit(str(job), 1000, 700, 9)]


def test_a_group_outside_of_what_is_mounted_is_left_alone(v2: Path) -> None:
    process(v2, 104, "0::/../other")

    assert host_memory.of_job([104], v2) == []


def test_the_nodes_memory_is_read(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text(
        "MemTotal: 100 kB\nMemFree: 1 kB\nMemAvailable: 60 kB\nHugePages_Total: 0\n"
    )

    assert host_memory.of_node(tmp_path) == Node(102400, 61440)
    assert host_memory.of_node().available > 0


def jobs(folder: Path, **states: JobContext) -> State:
    state = State(folder)
    for name, context in states.items():
        request = Request(name, "demo", "", (0,), 0, 0)
        state.jobs[name] = Job(request, "a", "token", context=context)
    return state


class OnJob(NoopBackend):
    charge = Charge.JOB


async def test_saved_state_of_other_jobs_counts_for_the_site_and_moves_under_way_for_the_node(
    tmp_path: Path,
) -> None:
    others = {"b": JobContext(Context.SAVED, 10 * GIB), "c": JobContext(Context.SAVING, 30 * GIB)}
    state = jobs(tmp_path, a=JobContext(Context.RESIDENT), **others)
    capped, free = (HostRoom(state, cap, lambda: NODE, lambda _: []) for cap in (50 * GIB, 0))
    mover = OnJob("n1", 1)

    assert "40.0 GiB are taken" in await capped.refusal(state.jobs["a"], mover, 11 * GIB)
    assert await capped.refusal(state.jobs["a"], mover, 10 * GIB) == ""
    assert "30.0 GiB promised" in await free.refusal(state.jobs["a"], mover, 29 * GIB)
    assert await free.refusal(state.jobs["a"], NoopBackend("n1", 1), 29 * GIB) == ""


async def test_a_copy_takes_the_place_of_the_one_of_its_name(tmp_path: Path) -> None:
    state = jobs(tmp_path, a=JobContext(Context.RESIDENT))
    state.jobs["a"].copies.update(first=30 * GIB, second=5 * GIB)
    capped = HostRoom(state, 50 * GIB, lambda: NODE, lambda _: [])
    mover = OnJob("n1", 1)
    mover.copy_name = "first"

    assert await capped.refusal(state.jobs["a"], mover, 45 * GIB) == ""
    assert "5.0 GiB are taken" in await capped.refusal(state.jobs["a"], mover, 46 * GIB)


def test_the_room_for_all_saved_state_is_the_sites_or_the_nodes_unless_a_disk_takes_the_rest(
    tmp_path: Path,
) -> None:
    def size(cap: int, disk: Callable[[], Disk] | None = None) -> int:
        return HostRoom(jobs(tmp_path), cap, lambda: NODE, disk=disk).size

    assert size(50 * GIB) == 50 * GIB
    assert size(0) == size(NODE.total * 9) == NODE.total * 98 // 100
    assert size(50 * GIB, lambda: Disk("/x", GIB, GIB)) == 0


async def test_where_nothing_can_be_read_nothing_is_refused(tmp_path: Path) -> None:
    def blind() -> Node:
        raise PermissionError("no")

    state = jobs(tmp_path, a=JobContext(Context.RESIDENT))

    assert await HostRoom(state, 0, blind, lambda _: []).refusal(state.jobs["a"], OnJob("n1", 1), GIB) == ""


async def test_a_snapshot_that_does_not_fit_is_refused_with_the_numbers_and_the_job_runs_on(
    folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    where = config(folder, orchestrator.address, host_memory_gib=2 / 1024)
    async with running(where, sim, SimBackend("n1", sim)):
        await start_job(folder)
        device = device_of(sim)
        small = device.put(np.ones(1 << 20, np.uint8))
        large = device.put(np.ones(2 << 20, np.uint8))

        refused = await orchestrator.asks("SNAPSHOT", "17", "1-1")
        large.free()
        saved = await orchestrator.asks("SNAPSHOT", "17", "1-2")
        await orchestrator.asks("RESTORE", "17", "1-3")

    assert (refused.ok, refused.context) == (False, "resident")
    assert refused.error == (
        "job 17: 3.0 MiB do not fit in host memory: of host_memory_gib = 0.00195312 for saved state on this "
        "node 0.0 MiB are taken"
    )
    assert saved.ok
    assert small.get().sum() == 1 << 20


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_a_limit_that_cannot_be_is_refused(value: float) -> None:
    with pytest.raises(ConfigError, match=r"\[agent\] host_memory_gib"):
        AgentConfig(host_memory_gib=value)
