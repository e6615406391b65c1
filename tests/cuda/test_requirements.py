"""What a node must have, and what is said where it has not."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.node_agent.backends.cuda import requirements
from slurm_interleave.node_agent.backends.cuda.probe import constrains_devices, mps_runs
from slurm_interleave.node_agent.backends.cuda.requirements import Facts, Way
from tests.cuda.conftest import Node
from tests.stub_driver.stub import MIB, Stub

GOOD = Facts(
    machine="x86_64",
    cuda_missing="",
    nvml_missing="",
    cuda_version=13000,
    lacking=(),
    driver="580.95.05",
    mig=(),
    not_persistent=(),
    mps=False,
    constrained=True,
    tool="",
)
OLD = replace(GOOD, driver="565.57.01", cuda_version=12070, lacking=("cuCheckpointProcessLock",))


@pytest.mark.parametrize(
    ("facts", "names"),
    [
        (GOOD, []),
        (replace(GOOD, driver="575.57.08"), []),
        (replace(GOOD, driver="570.86.10", constrained=False), []),
        (replace(GOOD, driver="570.86.10"), ["driver_too_old_for_constrain_devices"]),
        (replace(GOOD, driver="575.51.03"), ["driver_too_old_for_constrain_devices"]),
        (OLD, ["driver_too_old"]),
        (replace(OLD, tool="/bin/cuda-checkpoint"), ["driver_too_old_for_constrain_devices"]),
        (replace(OLD, tool="/bin/cuda-checkpoint", constrained=False), []),
        (replace(OLD, driver="550.54.14", tool="/bin/x", constrained=False), []),
        (replace(OLD, driver="550.54.14", constrained=False), ["driver_too_old"]),
        (replace(OLD, driver="545.23.08", tool="/bin/x", constrained=False), ["driver_too_old"]),
        (replace(GOOD, cuda_version=12040), ["driver_too_old"]),
        (replace(GOOD, lacking=("cuCheckpointProcessRestore",)), ["driver_too_old"]),
        (replace(GOOD, cuda_missing="libcuda.so.1: not found"), ["no_driver"]),
        (replace(GOOD, nvml_missing="nvmlInit_v2: error 9"), ["no_driver"]),
        (replace(GOOD, machine="aarch64"), ["not_x86_64"]),
        (replace(GOOD, mig=("GPU-1",)), ["mig"]),
        (replace(GOOD, mps=True), ["mps"]),
        (replace(GOOD, not_persistent=("GPU-1",)), ["no_persistence_mode"]),
        (replace(GOOD, mig=("GPU-1",), mps=True), ["mig", "mps"]),
    ],
)
def test_each_lack_has_a_name(facts: Facts, names: list[str]) -> None:
    assert [reason.name for reason in requirements.refusals(facts)] == names


def test_the_program_is_used_where_the_driver_has_no_functions() -> None:
    assert requirements.way(replace(OLD, tool="/bin/cuda-checkpoint")) is Way.TOOL
    assert requirements.way(replace(OLD, tool="/bin/x", driver="555.42.02")) is Way.TOOL
    assert requirements.way(replace(OLD, tool="/bin/x", driver="550.163.01")) is Way.TOGGLE
    assert requirements.way(replace(GOOD, tool="/bin/cuda-checkpoint")) is Way.FUNCTIONS


@pytest.mark.parametrize(
    ("facts", "names"),
    [
        (GOOD, []),
        (replace(GOOD, driver="570.86.10", constrained=None), ["constrain_devices_unknown"]),
        (replace(GOOD, driver="595.71.05"), ["driver_595"]),
        (replace(OLD, tool="/bin/x"), ["no_nvml_in_jobs"]),
        (replace(OLD, tool="/bin/x", driver="550.54.14"), ["driver_toggles", "no_nvml_in_jobs"]),
    ],
)
def test_what_may_go_wrong_is_told(facts: Facts, names: list[str]) -> None:
    assert [reason.name for reason in requirements.cautions(facts)] == names


def test_devices_are_exchanged_by_580_alone_and_without_constrain_devices() -> None:
    assert requirements.can_map(replace(GOOD, constrained=False)) == ""
    assert "ConstrainDevices" in requirements.can_map(GOOD)
    assert "580" in requirements.can_map(replace(GOOD, driver="575.57.08", constrained=False))


def test_nccl_settings_that_make_a_snapshot_fail_are_named() -> None:
    assert requirements.environment_cautions({"NCCL_CUMEM_ENABLE": "0", "NCCL_NVLS_ENABLE": "0"}) == []
    assert requirements.environment_cautions({"NCCL_CUMEM_ENABLE": "1"}) == [
        "NCCL_CUMEM_ENABLE=1",
        "NCCL_NVLS_ENABLE=(not set)",
    ]


async def test_such_settings_are_logged_once_a_job(
    node: Node, stub: Stub, caplog: pytest.LogCaptureFixture
) -> None:
    for device in (0, 1):
        stub.start("17", f"{device}:1", NCCL_NVLS_ENABLE="1")

    await node.saved()
    await node.bring()
    await node.saved()

    (record,) = [record for record in caplog.records if record.message == "cuda.environment"]
    assert record.found == "NCCL_NVLS_ENABLE=1"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "constrained"),
    [("ConstrainDevices=yes\n", True), ("constraindevices = YES # x", True), ("ConstrainCores=yes\n", False)],
)
def test_constrain_devices_is_read_beside_slurm_conf(tmp_path: Path, text: str, constrained: bool) -> None:
    (tmp_path / "cgroup.conf").write_text(text)

    assert constrains_devices({"SLURM_CONF": str(tmp_path / "slurm.conf")}) is constrained


def test_the_mps_daemon_is_seen_by_its_name(tmp_path: Path) -> None:
    for pid, name in ((1, "init"), (7, "nvidia-cuda-mps-control"[:15])):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "comm").write_text(f"{name}\n")

    assert mps_runs(tmp_path)
    assert not mps_runs(tmp_path / "7")


async def test_the_devices_are_those_of_the_driver(node: Node, stub: Stub) -> None:
    devices = node.backend.devices()

    assert [(device.index, device.uuid) for device in devices] == list(enumerate(stub.uuids))
    assert {(device.type, device.memory_bytes) for device in devices} == {("cuda", 64 * MIB)}


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"version": 12040, "driver": "550.54.14"}, ["driver_too_old"]),
        ({"mig": 1, "persistence": 0}, ["mig", "no_persistence_mode"]),
    ],
)
async def test_a_node_that_cannot_serve_says_why(
    stub: Stub, tmp_path: Path, settings: dict[str, int], names: list[str]
) -> None:
    stub.set(**settings)

    with pytest.raises(ConfigError) as refused:
        await asyncio.to_thread(Node, tmp_path)

    assert all(f"{name}: " in str(refused.value) for name in names)


async def test_a_node_without_the_driver_says_so(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH")

    with pytest.raises(ConfigError, match=r"no_driver: .*libcuda"):
        await asyncio.to_thread(Node, tmp_path)
