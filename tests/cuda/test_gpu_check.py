"""`make gpu-check`, run dry on the stub of the driver, with nothing but what PyTorch images carry."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.stub_driver.stub import CHECKPOINTED, HERE, Stub

ROOT = Path(__file__).parents[2]
# What our own environment has, and such an image has not.
ABSENT = ("grpc", "google", "click", "rich", "sqlalchemy", "numpy")


def gpu_check(
    folder: Path, *arguments: str, benchmarks: Path = ROOT / "benchmarks"
) -> subprocess.CompletedProcess[str]:
    subprocess.run(["make", "-s", "build/gpu"], cwd=ROOT, check=True)
    absent = folder / "absent"
    absent.mkdir(exist_ok=True)
    for name in ABSENT:
        (absent / f"{name}.py").write_text("raise ImportError('an image does not have it')\n")
    environment = {**os.environ, "PYTHONPATH": f"{absent}:{ROOT}/build/gpu"}
    argv = [sys.executable, str(benchmarks / "gpu_check.py"), "--results", str(folder), *arguments]
    return subprocess.run(argv, check=False, capture_output=True, text=True, env=environment)


def dry(
    folder: Path, *arguments: str, benchmarks: Path = ROOT / "benchmarks", job: Path = HERE / "job.py"
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    done = gpu_check(
        folder,
        "--job",
        str(job),
        "--headroom-mib",
        "1",
        "--share",
        "0.5",
        *arguments,
        benchmarks=benchmarks,
    )
    (path,) = folder.glob("*-stub-gpu-*.json")
    return done, json.loads(path.read_text())


def test_it_says_where_there_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))

    done = gpu_check(tmp_path)

    assert done.returncode == 2
    assert done.stderr.startswith("gpu-check: it needs a machine with an NVIDIA GPU: no_driver: ")
    assert not list(tmp_path.glob("*.json"))


def test_all_cases_pass_on_the_stub_and_are_written_down(stub: Stub, tmp_path: Path) -> None:
    done, result = dry(tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert (result["card"], result["driver"], result["devices"]) == ("Stub GPU", "580.95.05", 4)
    results = {case["name"]: case["result"] for case in result["cases"]}
    assert {name for name, said in results.items() if said != "ok"} <= {
        "pinned_memory",  # needs PyTorch, as the next three do
        "torch_backend",
        "endless_work",
        "calls_wait_and_threads_go_on",
        "own_store",  # needs driver 615
        "other_device",  # not without a cgroup.conf
    }
    (large,) = [case for case in result["cases"] if case["name"] == "large"]
    assert large["figures"]["bytes"] > 30 << 20
    assert len(large["figures"]["rounds"]) == 3
    grown = large["figures"]["host_memory_grows_by"]
    charged = large["figures"]["charged_to_cgroup"]
    assert (charged is None) == ("cgroup" not in grown)
    assert charged is None or charged * large["figures"]["bytes"] == pytest.approx(grown["cgroup"])


def test_copies_of_our_own_are_tried_where_the_driver_lets_us(stub: Stub, tmp_path: Path) -> None:
    stub.set(version=13040, driver="615.71.09")
    (stub.folder / "gpus").write_text("".join(f"{uuid} {4 << 30} 0\n" for uuid in stub.uuids))

    done, result = dry(tmp_path, "--only", "own_store")

    assert done.returncode == 0, done.stdout
    (case,) = result["cases"]
    assert (case["result"], len(case["figures"]["rounds"])) == ("ok", 3)
    assert stub.asked("complete")


# What a GPU would measure, in place of snapshot_torch.py: a torch that has a device, and these ratios.
MEASURED = {"suspend_over_copy": 0.97, "resume_over_copy": 0.91}


@pytest.mark.parametrize(
    ("ends", "result", "text"),
    [
        (f"print({json.dumps(json.dumps(MEASURED))})", "ok", ""),
        (f"print({json.dumps(json.dumps({**MEASURED, 'resume_over_copy': 0.5}))})", "failed", "is 0.5"),
        ("import sys; print('no_gpu: none', file=sys.stderr); sys.exit(2)", "skipped", "no_gpu: none"),
        ("raise RuntimeError('other bytes')", "failed", "other bytes"),
    ],
)
def test_the_torch_backend_is_held_against_plain_copies(
    stub: Stub, tmp_path: Path, ends: str, result: str, text: str
) -> None:
    benchmarks = tmp_path / "benchmarks"
    benchmarks.mkdir()
    for path in (ROOT / "benchmarks").glob("gpu_*.py"):
        (benchmarks / path.name).write_text(path.read_text())
    (benchmarks / "snapshot_torch.py").write_text(ends)

    _, said = dry(tmp_path, "--only", "torch", benchmarks=benchmarks)

    (case,) = said["cases"]
    assert (case["result"], text in case["text"]) == (result, True)
    assert (case["figures"] == MEASURED) == (result == "ok")


def test_without_a_device_or_without_torch_the_reason_has_a_name(stub: Stub, tmp_path: Path) -> None:
    _, said = dry(tmp_path, "--only", "torch")

    (case,) = said["cases"]
    assert case["result"] == "skipped"
    assert case["text"].startswith(("no_gpu: ", "no_torch: "))


def test_a_case_that_fails_is_told_and_fails_the_whole(stub: Stub, tmp_path: Path) -> None:
    stub.fault("checkpoint", 801, count=-1)

    done, result = dry(tmp_path, "--only", "small")

    assert done.returncode == 1
    (case,) = result["cases"]
    assert (case["result"], "UVM" in case["text"]) == ("failed", True)
    assert "failed  small" in done.stdout


def test_a_device_is_found_whatever_its_number_is(stub: Stub, tmp_path: Path) -> None:
    stub.set(first_minor=5)  # a container, or a job, that sees some of the devices

    done, result = dry(tmp_path, "--only", "t")  # small is among the others

    assert done.returncode == 0, done.stdout
    assert "ok" in {case["result"] for case in result["cases"]}


def test_processes_need_not_be_listed_by_nvml(stub: Stub, tmp_path: Path) -> None:
    stub.set(nvml_bytes="hidden")  # a container, whose process ids are others than the host's

    done, _ = dry(tmp_path, "--only", "small")

    assert done.returncode == 0, done.stdout


BREAKS = {
    "does not start": ("import sys; sys.exit(1)", "did not start"),
    "gives no answer": ("print('ready', flush=True); import time; time.sleep(600)", "gave no answer"),
    "ends": ("print('ready', flush=True)", "has ended"),
}


@pytest.mark.parametrize(("program", "text"), BREAKS.values(), ids=BREAKS.keys())
def test_a_program_that_breaks_fails_its_cases_alone(
    stub: Stub, tmp_path: Path, program: str, text: str
) -> None:
    job = tmp_path / "job.py"
    job.write_text(program)

    done, result = dry(tmp_path, "--only", "ed_", "--answer-s", "0.5", job=job)

    assert done.returncode == 1
    said = {case["name"]: (case["result"], text in case["text"]) for case in result["cases"]}
    assert said["pinned_memory"] == ("failed", True)
    assert len(said) > 2
    assert "Traceback" not in done.stderr


def test_a_driver_that_gives_no_answer_fails_a_case_and_no_more(stub: Stub, tmp_path: Path) -> None:
    stub.fault("lock", 600)
    stub.fault("state", 0, delay_ms=60_000)
    job = tmp_path / "job.py"
    busy = 'if word == "busy":\n        return "ok"\n    if word == "fork":'
    job.write_text((HERE / "job.py").read_text().replace('if word == "fork":', busy))

    done, result = dry(tmp_path, "--only", "endless_work", job=job)

    (case,) = result["cases"]
    assert (done.returncode, case["result"]) == (1, "failed")
    assert "HelperLost" in case["text"]


def test_what_host_memory_cannot_hold_is_not_saved(stub: Stub, tmp_path: Path) -> None:
    _, result = dry(tmp_path, "--only", "large", "--host-share", "1e-9")

    (case,) = result["cases"]
    assert (case["result"], case["figures"]["bytes"]) == ("ok", 1 << 20)


def test_a_restored_process_is_saved_before_it_is_killed_where_the_host_would_hang_else(
    stub: Stub, tmp_path: Path
) -> None:
    stub.set(version=13020, driver="595.71.05")

    dry(tmp_path, "--only", "small")

    (pid,) = {call.pid for call in stub.asked("restore")}
    assert stub.state(pid) == CHECKPOINTED
