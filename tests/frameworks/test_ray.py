"""Two jobs with a Ray each on one node: own ports and folders, turns on one device, and one may end first."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import LocalLab
from lab.interleave_conf import SimSettings
from lab.processes import wait_until
from slurm_interleave.client.core.errors import InterleaveError
from slurm_interleave.client.integrations import ray_env
from slurm_interleave.client.sim.records import VIOLATIONS, read_lines
from tests.frameworks.needs import needs

ROOT = Path(__file__).parents[2]
LIMIT_S = 120


def made(job: str, taken: range = range(0)) -> dict[str, str]:
    environ = {"SLURM_JOB_ID": job, "SLURM_CPUS_ON_NODE": "4", "CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2"}
    return ray_env.ray_environment(environ, "10.0.0.1", lambda port: port not in taken, "/tmp/{}".format)


def ports(environment: dict[str, str]) -> set[int]:
    options = dict(word.partition("=")[::2] for word in environment["INTERLEAVE_RAY_HEAD"].split())
    named = {int(value) for name, value in options.items() if name.endswith("port")}
    return named | set(range(int(options["--min-worker-port"]), int(options["--max-worker-port"]) + 1))


def test_the_ports_of_jobs_that_follow_do_not_meet() -> None:
    every = [ports(made(str(job))) for job in range(41, 61)]

    assert sum(map(len, every)) == len(set.union(*every))
    assert all(10002 <= port < 32768 for block in every for port in block)


def test_a_block_of_which_a_port_is_taken_is_passed_over() -> None:
    own = ports(made("17"))

    assert ports(made("17", taken=range(min(own) + 3, min(own) + 4))).isdisjoint(own)
    with pytest.raises(InterleaveError, match="no 100 free ports for Ray"):
        made("17", taken=range(65536))


def test_a_cluster_has_what_the_job_has_of_the_node() -> None:
    assert {"--num-cpus=4", "--num-gpus=2"} <= set(made("17")["INTERLEAVE_RAY_HEAD"].split())
    assert "--address=10.0.0.1:" in made("17")["INTERLEAVE_RAY_NODE"]
    assert made("a/b c" * 9)["RAY_TMPDIR"].startswith("/tmp/ilv-abcabcabcabc")


def test_a_port_that_somebody_listens_on_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert not ray_env.is_free(listening.getsockname()[1])


@pytest.fixture
def lab() -> Iterator[LocalLab]:
    with LocalLab.start(devices=1, sim=SimSettings(memory_mib=1)) as started:
        yield started


def submit(lab: LocalLab, name: str, steps: int) -> tuple[str, Path]:
    out = lab.root / "out" / name
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {"PATH": path, "PYTHONPATH": f"{ROOT}:{ROOT}/examples", "OMP_NUM_THREADS": "1"}
    command = [str(ROOT / "examples" / "frameworks" / "with_ray.sh"), "python", "-m"]
    command += ["tests.frameworks.ray_driver", str(out), str(steps), str(lab.root / "out" / "go")]
    return lab.submit(command, group="ray", env=env), out


def finished(lab: LocalLab, job: str) -> None:
    status, said = lab.wait(job, LIMIT_S), lab.output(job)
    if status and "timed out during startup" in said:
        pytest.skip("Ray did not start within its 30 s: this machine is too busy for it")
    assert status == 0, said


@needs("ray")
@pytest.mark.timeout(3 * LIMIT_S + 60)
def test_two_clusters_share_a_node_and_take_turns_on_its_device(lab: LocalLab) -> None:
    # One after the other: Ray gives up where a busy machine does not start it within 30 s.
    longer, two = submit(lab, "longer", 6)
    go = lab.root / "out" / "go"
    waits = wait_until(lambda: go.with_suffix(".waits").exists() or not lab.running(longer), LIMIT_S)
    assert waits, lab.output(longer)
    if not go.with_suffix(".waits").exists():
        finished(lab, longer)
    short, one = submit(lab, "short", 3)

    finished(lab, short)
    assert not two.exists()
    go.touch()
    finished(lab, longer)

    told = [json.loads(out.read_text()) for out in (one, two)]
    assert told[0]["means"] == told[1]["means"][:3]
    assert [each["cluster"] for each in told] == [each["asked"] for each in told]
    assert told[0]["cluster"] != told[1]["cluster"]
    assert read_lines(lab.scratch.sim / "local" / VIOLATIONS) == []
    assert wait_until(lambda: not any(map(listens, (told[0]["cluster"], told[1]["cluster"]))), 60)


def listens(address: str) -> bool:
    return not ray_env.is_free(int(address.rpartition(":")[2]))
