"""Jobs that sacct lists become jobs that take turns, whatever they are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_interleave.client.cli.interleave import main
from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.orchestrator.simulator.program import Cost
from slurm_interleave.orchestrator.simulator.sacct import FromSacct, from_sacct
from slurm_interleave.orchestrator.simulator.traces import declared_jobs
from slurm_interleave.orchestrator.simulator.workloads import Workload


def read(text: str) -> FromSacct:
    return from_sacct(text, Workload("w", 300, 120), Cost(2, 1))


def test_jobs_of_sacct_take_as_many_steps_as_their_time_held() -> None:
    found = read("1|a|36000|billing=1,gres/gpu=8\n2|b|30000|cpu=1,gres/gpu=8\n")

    assert [(job.name, job.steps, job.devices) for job in found.jobs] == [("1.a", 85, 8), ("2.b", 71, 8)]
    first, second = declared_jobs(found.jobs)
    assert first.pools == second.pools


def test_two_at_a_time_with_as_many_devices_share_them_in_the_order_of_the_list() -> None:
    sizes = (8, 4, 8, 8, 4, 8, 8)
    found = read("".join(f"{n}|x|900|gres/gpu={size}\n" for n, size in enumerate(sizes)))

    together: dict[object, list[str]] = {}
    for job in declared_jobs(found.jobs):
        together.setdefault(job.pools["trainer"].nodes, []).append(job.name.partition(".")[0])
        assert job.cost == Cost(2, 1)
    assert sorted(together.values()) == [["0", "2"], ["1", "4"], ["3", "5"], ["6"]]


@pytest.mark.parametrize(
    "name",
    ["a|b", "|", '"odd', '"odd"', 'a"b', "", "a|600|gres/gpu=1", "a\u2028b", "a\x0bb", "a\tb", "\ufffd"],
)
def test_a_job_may_have_any_name_and_takes_no_line_with_it(name: str) -> None:
    found = read(f"1|x|900|gres/gpu=1\n2|{name}|900|gres/gpu=1\r\n3|z|900|gres/gpu=1\n")

    assert [job.name for job in found.jobs] == ["1.x", f"2.{name}", "3.z"]


@pytest.mark.parametrize(
    ("tres", "devices"),
    [
        ("billing=4,cpu=4,gres/gpu:h100=2,node=1", 2),
        ("gres/gpu:h100=2", 2),
        ("gres/gpu:a100=1,gres/gpu:h100=2", 3),
        ("gres/gpu:h100=2,gres/gpu=2,node=1", 2),
        ("gres/gpu=3,gres/gpu:h100=2", 3),
    ],
)
def test_the_gpus_of_a_job_are_counted_once_whichever_way_slurm_counts_them(tres: str, devices: int) -> None:
    assert [job.devices for job in read(f"1|x|900|{tres}\n").jobs] == [devices]


def test_lines_without_a_gpu_or_a_whole_step_are_left_out_and_counted() -> None:
    found = read(
        "1|a|900|gres/gpu=0\n2|b|900|\n3|c|900|cpu=2,gres/gpumem=8,gres/shard=1\n4|d|30|gres/gpu=8\n"
        "5|e|900|gres/gpu:h100=0\n"
    )

    assert found == ([], {"had no GPU": 4, "ran for less than a step of 420 s": 1})


@pytest.mark.parametrize(
    "line", ["1|a|10:00:00|gres/gpu=8", "1|a|900", "JobID|JobName|ElapsedRaw|AllocTRES", "1|a|²|"]
)
def test_output_of_sacct_with_other_fields_is_refused_with_the_call_that_gives_them(line: str) -> None:
    with pytest.raises(BadArgument, match="sacct -X -n -P -o JobID"):
        read(f"{line}\n")


def test_simulate_takes_names_in_another_encoding_and_says_what_it_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "week.txt"
    file.write_bytes("1|grün|900|gres/gpu=1\n2|b|900|gres/gpu=1\n3|c|900|cpu=1\n".encode("latin-1"))

    assert main(["simulate", "--sacct", "--phases", "300,120", str(file)]) == 0

    captured = capsys.readouterr()
    assert captured.out.startswith("2 jobs\n")
    assert captured.err == f"{file}: 1 lines left out: 1 had no GPU\n"
