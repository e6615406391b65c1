"""Each option of `interleave simulate` changes what it says, and the table says what --json does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_interleave.client.cli.interleave import main
from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.orchestrator.simulator.figures import figures
from slurm_interleave.orchestrator.simulator.program import Cost
from slurm_interleave.orchestrator.simulator.sacct import from_sacct
from slurm_interleave.orchestrator.simulator.traces import declared_jobs
from slurm_interleave.orchestrator.simulator.workloads import Workload
from slurm_interleave.orchestrator.simulator.world import World

Simulate = Callable[..., Any]
TIMES = {"rollout_s": 30, "train_s": 20, "steps": 4}
SACCT = "1|a|9000|gres/gpu=2\n2|b|7000|gres/gpu=2\n"


@pytest.fixture
def simulate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Simulate:
    """Simulate a trace; return what --json prints, or the table."""

    def run(trace: Any, *options: str) -> Any:
        file = tmp_path / "trace"
        file.write_text(trace if isinstance(trace, str) else json.dumps(trace))
        assert main(["simulate", str(file), *options]) == 0
        out = capsys.readouterr().out
        return json.loads(out) if "--json" in options else out

    return run


def hold(job: str, asked: float, granted: float, yielded: float, restore_s: float = 0.0) -> dict[str, Any]:
    times = {"acquired_s": granted, "waited_s": granted - asked, "yielded_s": yielded}
    return {"job": job, "pool": "p", **times, "snapshot_s": 10.0, "restore_s": restore_s}


RECORD = {
    "timesliced": {"holds": [hold("A", 0, 0, 100), hold("B", 20, 110, 195), hold("A", 130, 210, 295, 5)]}
}


def jobs(simulated: Any) -> set[str]:
    return set(simulated["fifo"]["slowdown"])


def test_the_learned_policy_is_simulated_unless_another_is_named(simulate: Simulate) -> None:
    assert list(simulate(RECORD, "--json")) == ["learned", "fifo"]
    assert list(simulate(RECORD, "--json", "--policy", "fifo")) == ["fifo"]


def test_of_the_jobs_that_share_few_enough_devices_the_first_are_taken(simulate: Simulate) -> None:
    sizes = {"wide": 8, "a": 2, "b": 2, "c": 1}
    trace = {
        "jobs": [{"name": name, "devices": size, "group": name, **TIMES} for name, size in sizes.items()]
    }

    assert jobs(simulate(trace, "--json")) == sizes.keys()
    assert jobs(simulate(trace, "--json", "--jobs", "2")) == {"wide", "a"}
    assert jobs(simulate(trace, "--json", "--devices", "2")) == {"a", "b", "c"}
    assert jobs(simulate(trace, "--json", "--devices", "2", "--jobs", "2")) == {"a", "b"}


def test_devices_are_counted_on_all_nodes_of_a_job(simulate: Simulate) -> None:
    times = {"Requested": 0.0, "Start": 0.0, "End": 9.0, "RestoreTime": 0.0, "SnapshotTime": 0.0}
    trace = {
        "slices": [
            {"JobID": "1", "Devices": ["n1/0", "n2/0"], **times},
            {"JobID": "2", "Devices": ["n3/0"], **times},
        ]
    }

    assert jobs(simulate(trace, "--json", "--devices", "2")) == {"1", "2"}
    assert jobs(simulate(trace, "--json", "--devices", "1")) == {"2"}


# B is granted after A's snapshot; A after B's and its own restore.
@pytest.mark.parametrize(
    ("cost", "makespan_s"), [((), 295), (("3,1",), 277), (("1,3",), 275), (("0,0",), 270)]
)
def test_a_cost_that_is_named_stands_for_that_of_the_trace(
    simulate: Simulate, cost: tuple[str, ...], makespan_s: float
) -> None:
    options = [word for text in cost for word in ("--backend-cost", text)]

    assert simulate(RECORD, "--json", *options)["fifo"]["makespan_s"] == pytest.approx(makespan_s)


def test_contexts_are_saved_ahead_as_eager_says(simulate: Simulate) -> None:
    holds = [
        hold("B", 0, 0, 10),
        hold("A", 20, 30, 100),
        hold("B", 150, 165, 200, 5),
        hold("A", 300, 305, 350, 5),
    ]
    trace = {"timesliced": {"holds": holds}}

    spans = [
        simulate(trace, "--json", "--policy", "fifo", "--eager", eager)["fifo"]["slowdown"]["B"]
        for eager in ("off", "always")
    ]

    assert spans == pytest.approx([200 / 185, 190 / 185])


@pytest.mark.parametrize(
    ("options", "cost"), [((), Cost(0.5, 0.5)), (("--backend-cost", "40,20"), Cost(40, 20))]
)
def test_jobs_of_sacct_have_the_phases_and_costs_that_are_named(
    simulate: Simulate, options: tuple[str, ...], cost: Cost
) -> None:
    made = declared_jobs(from_sacct(SACCT, Workload("sacct", 300, 120), cost).jobs)

    found = simulate(SACCT, "--json", "--sacct", "--phases", "300,120", *options)

    expected = figures(made, World(made, Rules()).run())
    assert found["fifo"]["makespan_s"] == expected.makespan_s
    assert found["fifo"]["slowdown"] == expected.slowdown
    assert {job.cost for job in made} == {cost}


def test_the_table_says_what_json_does(simulate: Simulate) -> None:
    mixed = {"snapshot_s": 9, "restore_s": 9, "staleness": 8}
    trace = {
        "jobs": [
            {"name": "math", "rollout_s": 222, "train_s": 185, "steps": 60, **mixed},
            {"name": "code", "rollout_s": 338, "train_s": 281, "steps": 20, **mixed},
        ]
    }
    told = simulate(trace, "--json")
    lines = simulate(trace).splitlines()

    assert len({f"{ratio:.2f}" for ratio in told["fifo"]["slowdown"].values()}) == 2
    for line, (name, found) in zip(lines[2:4], told.items(), strict=True):
        words = line.replace(" s ", " ").split()
        assert words[0] == name
        assert [float(word) for word in words[1:3]] == [round(found["makespan_s"]), round(found["bound_s"])]
        assert words[3:5] == [f"{found['duty']:.1%}", f"{max(found['slowdown'].values()):.2f}x"]
        assert words[5] == f"{found['saved_device_s'] / 3600:.1f}"
    [pool], [of_fifo] = told["learned"]["pools"], told["fifo"]["pools"]
    assert pool["switches"] != of_fifo["switches"]
    assert lines[-1].split()[-2:] == [str(pool["turns"]), str(pool["switches"])]


def test_two_traces_with_jobs_of_one_name_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(RECORD))

    assert main(["simulate", str(file), str(file)]) == 1

    assert "same name" in capsys.readouterr().err


def test_a_record_in_which_jobs_would_wait_for_each_other_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "trace.json"
    holds = [hold("A", 0, 0, 100), hold("B", 10, 10, 50), hold("A", 20, 50, 90), hold("B", 30, 100, 120)]
    pools = [{**one, "pool": pool} for one, pool in zip(holds, "pqqp", strict=True)]
    file.write_text(json.dumps({"timesliced": {"holds": pools}}))

    assert main(["simulate", str(file)]) == 1

    err = capsys.readouterr().err
    assert "would wait for ever" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("phases", ["0,120", "300,0", "0,0"])
def test_phases_of_no_length_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], phases: str
) -> None:
    file = tmp_path / "week.txt"
    file.write_text(SACCT)

    assert main(["simulate", "--sacct", "--phases", phases, str(file)]) == 1

    assert "longer than 0 s" in capsys.readouterr().err
