"""What custom storage hands to the driver has the layout of cuda.h and of the real cuda-bindings."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys

from slurm_interleave.node_agent.backends.cuda.driver import RestoreArgs
from slurm_interleave.node_agent.backends.cuda.store import CheckpointArgs, Extent, Info
from tests.stub_driver.stub import CHECKPOINTED, MIB, Stub

# With the real cuda-bindings: an integer address of a pointer's place is what they take for it.
CYCLE = """
import ctypes, sys
from cuda.bindings import driver as cu
from slurm_interleave.node_agent.backends.cuda.store import Info
pid = int(sys.argv[1])
def check(result):
    assert result[0] == cu.CUresult.CUDA_SUCCESS, result
    return result[1:]
check(cu.cuInit(0))
held = [check(cu.cuDevicePrimaryCtxRetain(check(cu.cuDeviceGet(i))[0])) for i in range(4)]
check(cu.cuCheckpointProcessLock(pid, None))
args = cu.CUcheckpointCheckpointArgs()
slot = ctypes.c_void_p()
args.customStorageInfo_out = ctypes.addressof(slot)
check(cu.cuCheckpointProcessCheckpoint(pid, args))
info = cu.CUcheckpointCustomStorageInfo(slot.value)
ours = Info.from_address(slot.value)
print([ours.extents[i].size for i in range(info.deviceCount)], int(info.handle) == ours.handle)
check(cu.cuCheckpointOperationComplete(info.handle))
print(int(check(cu.cuCheckpointProcessGetState(pid))[0]))
"""


def test_the_calls_are_those_of_cuda_bindings(stub: Stub) -> None:
    stub.set(version=13041)
    rank = stub.start("17", "1:2", "3:1")

    done = subprocess.run(
        [sys.executable, "-c", CYCLE, str(rank.pid)], check=False, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{json.dumps([2 * MIB, MIB])} True\n{CHECKPOINTED}\n"
    assert [call.arguments for call in stub.asked("checkpoint")] == ["custom"]


def test_layouts_are_those_of_cuda_h() -> None:
    kinds = (CheckpointArgs, RestoreArgs, Info, Extent)
    assert [ctypes.sizeof(kind) for kind in kinds] == [64, 64, 24, 24]
    assert RestoreArgs.storage.offset == 16
