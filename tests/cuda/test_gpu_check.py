"""`make gpu-check`, run dry on the stub of the driver, with nothing but what PyTorch images carry."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.stub_driver.stub import HERE, Stub

ROOT = Path(__file__).parents[2]
# What our own environment has, and such an image has not.
ABSENT = ("grpc", "google", "click", "rich", "sqlalchemy", "numpy")


def gpu_check(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    subprocess.run(["make", "-s", "build/gpu"], cwd=ROOT, check=True)
    absent = folder / "absent"
    absent.mkdir(exist_ok=True)
    for name in ABSENT:
        (absent / f"{name}.py").write_text("raise ImportError('an image does not have it')\n")
    environment = {**os.environ, "PYTHONPATH": f"{absent}:{ROOT}/build/gpu"}
    argv = [sys.executable, str(ROOT / "benchmarks" / "gpu_check.py"), "--results", str(folder), *arguments]
    return subprocess.run(argv, check=False, capture_output=True, text=True, env=environment)


def dry(folder: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    done = gpu_check(
        folder, "--job", str(HERE / "job.py"), "--headroom-mib", "1", "--share", "0.5", *arguments
    )
    (path,) = folder.glob("*-stub-gpu-580.95.05.json")
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
        "pinned_memory",  # needs PyTorch, as the next two do
        "endless_work",
        "calls_wait_and_threads_go_on",
        "other_device",  # not without a cgroup.conf
    }
    (large,) = [case for case in result["cases"] if case["name"] == "large"]
    assert large["figures"]["bytes"] > 30 << 20
    assert len(large["figures"]["rounds"]) == 3


def test_a_case_that_fails_is_told_and_fails_the_whole(stub: Stub, tmp_path: Path) -> None:
    stub.fault("checkpoint", 801, count=-1)

    done, result = dry(tmp_path, "--only", "small")

    assert done.returncode == 1
    (case,) = result["cases"]
    assert (case["result"], "UVM" in case["text"]) == ("failed", True)
    assert "failed  small" in done.stdout
