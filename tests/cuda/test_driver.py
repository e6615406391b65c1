"""Our calls of the driver's libraries, beside those of NVIDIA's own packages."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from typing import Any

from slurm_interleave.node_agent.backends.cuda import driver
from tests.stub_driver.stub import CHECKPOINTED, MIB, RUNNING, Asked, Stub

CYCLE = """
import ctypes, sys
from cuda.bindings import driver as cu
pid, uuids = int(sys.argv[1]), sys.argv[2:]
def check(result):
    assert result[0] == cu.CUresult.CUDA_SUCCESS, result
    return result[1:]
check(cu.cuInit(0))
lock = cu.CUcheckpointLockArgs()
lock.timeoutMs = 4321
check(cu.cuCheckpointProcessLock(pid, lock))
check(cu.cuCheckpointProcessCheckpoint(pid, None))
raw = [ctypes.create_string_buffer(bytes.fromhex(name[4:].replace("-", "")), 16) for name in uuids]
pairs = []
for old, new in zip(raw, raw[1:] + raw[:1]):
    pair = cu.CUcheckpointGpuPair()
    pair.oldUuid = cu.CUuuid(ctypes.addressof(old))
    pair.newUuid = cu.CUuuid(ctypes.addressof(new))
    pairs.append(pair)
restore = cu.CUcheckpointRestoreArgs()
restore.gpuPairs = pairs
restore.gpuPairsCount = len(pairs)
check(cu.cuCheckpointProcessRestore(pid, restore))
print(int(check(cu.cuCheckpointProcessGetState(pid))[0]))
check(cu.cuCheckpointProcessUnlock(pid, None))
"""
OURS = """
import sys
from slurm_interleave.node_agent.backends.cuda.driver import Driver
pid, uuids = int(sys.argv[1]), sys.argv[2:]
driver = Driver()
assert driver.lock(pid, 4321)[0] == 0
assert driver.checkpoint(pid)[0] == 0
assert driver.restore(pid, list(zip(uuids, uuids[1:] + uuids[:1])))[0] == 0
print(driver.state(pid)[1])
assert driver.unlock(pid)[0] == 0
"""
DEVICES = """
import json, sys, time
import pynvml
pynvml.nvmlInit()
rows = []
def working(d):
    try:
        samples = pynvml.nvmlDeviceGetProcessUtilization(d, int((time.time() - 1) * 1e6))
    except pynvml.NVMLError_NotFound:
        return []
    return [s.pid for s in samples if s.smUtil]
def load(d):
    rates = pynvml.nvmlDeviceGetUtilizationRates(d)
    return max(rates.gpu, rates.memory)
for i in range(pynvml.nvmlDeviceGetCount()):
    d = pynvml.nvmlDeviceGetHandleByIndex(i)
    m = pynvml.nvmlDeviceGetMemoryInfo(d)
    rows.append([pynvml.nvmlDeviceGetUUID(d), pynvml.nvmlDeviceGetName(d), m.total, m.free, m.used,
        pynvml.nvmlDeviceGetMinorNumber(d), pynvml.nvmlDeviceGetPersistenceMode(d),
        pynvml.nvmlDeviceGetMigMode(d)[0],
        [[p.pid, p.usedGpuMemory] for p in pynvml.nvmlDeviceGetComputeRunningProcesses(d)], working(d),
        load(d)])
print(json.dumps([pynvml.nvmlSystemGetDriverVersion(), rows]))
"""
OUR_DEVICES = """
import json
from slurm_interleave.node_agent.backends.cuda.nvml import Nvml
nvml = Nvml()
keys = ("uuid", "name", "total", "free", "used", "index", "persistence", "mig", "processes", "working",
    "load")
print(json.dumps([nvml.driver(), [[row[key] for key in keys] for row in nvml.devices()]]))
"""


def run(program: str, *arguments: object) -> str:
    """Run in a process of its own, since a driver's library is loaded once."""
    argv = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def what_was_asked(stub: Stub, pid: int) -> list[tuple[str, Any, str]]:
    return [(call.op, call.code, call.arguments) for call in stub.asked(pid=pid)]


def test_our_calls_are_those_of_cuda_bindings_byte_by_byte(stub: Stub) -> None:
    theirs, ours = stub.start("17", "1:2"), stub.start("17", "1:2")

    states = run(CYCLE, theirs.pid, *stub.uuids), run(OURS, ours.pid, *stub.uuids)

    assert states == ("1\n", "1\n")
    assert what_was_asked(stub, theirs.pid) == what_was_asked(stub, ours.pid)
    assert stub.bytes(theirs.pid) == stub.bytes(ours.pid) == {2: 2 * MIB}


def test_what_we_read_from_nvml_is_what_nvidias_package_reads(stub: Stub) -> None:
    for device in (0, 0, 3):
        stub.start("17", f"{device}:2")
    stub.nvml_says(stub.start("17", "1:1").pid, "none")
    busy = stub.start("17", "2:1")
    stub.works(busy.pid)

    theirs, ours = json.loads(run(DEVICES)), json.loads(run(OUR_DEVICES))

    assert theirs == ours
    assert ours[1][1][-3][0][1] is None
    assert ours[1][2][-2:] == [[busy.pid], 50]


def test_a_job_survives_the_exchange_of_all_devices(stub: Stub) -> None:
    process = stub.start("17", "0:3")
    before = process.ask("hash")

    run(CYCLE, process.pid, *stub.uuids)

    assert stub.state(process.pid) == RUNNING
    assert process.ask("hash") == before


def test_an_incomplete_map_is_refused_by_the_stub_as_by_the_driver(stub: Stub) -> None:
    process = stub.start("17", "0:3")
    program = OURS.replace("list(zip(uuids, uuids[1:] + uuids[:1]))", "[(uuids[0], uuids[1])]")

    failed = subprocess.run(
        [sys.executable, "-c", program, str(process.pid), *stub.uuids],
        check=False,
        capture_output=True,
        text=True,
    )

    assert failed.returncode == 1
    (restore,) = stub.asked("restore")
    assert isinstance(restore, Asked)
    assert (restore.code, stub.state(process.pid)) == (1, CHECKPOINTED)


def test_layouts_are_those_of_cuda_h() -> None:
    assert [ctypes.sizeof(kind) for kind in (driver.LockArgs, driver.RestoreArgs, driver.GpuPair)] == [
        64,
        64,
        32,
    ]
    assert driver.RestoreArgs.count.offset == 8
