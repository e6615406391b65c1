"""The cuda backend on the stub of the driver: 8 processes on 4 devices of a set speed.

`measure()` for benchmarks/snapshot.py, or `python benchmarks/snapshot_cuda.py` alone. The time should be that
of the slowest device: devices copy at the same time, the processes of one device share its speed.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from slurm_interleave.node_agent.backends.cuda.backend import CudaBackend
from slurm_interleave.node_agent.backends.cuda.settings import CudaConfig
from slurm_interleave.node_agent.backends.protocol import Target
from slurm_interleave.node_agent.job_processes import Owner
from tests.stub_driver.stub import MIB, Stub, build

JOB = "bench"
# Of each process, in MiB: the first device is the slowest one, with as much as all others have.
SIZES = {0: (12, 12), 1: (4, 4), 2: (4, 4), 3: (4, 4)}
SPEED = 8 * MIB  # bytes a second


def measure(rounds: int = 3) -> dict[str, float]:
    """Return the seconds of snapshot and restore, beside those of the slowest device and of all in turn."""
    with tempfile.TemporaryDirectory(prefix="snapshot-cuda-") as folder:
        stub = Stub(Path(folder) / "stub", build(Path(folder)))
        kept = dict(os.environ)
        os.environ.update(stub.environment)
        try:
            return asyncio.run(_measure(stub, Path(folder), rounds))
        finally:
            os.environ.clear()
            os.environ.update(kept)
            stub.close()


async def _measure(stub: Stub, folder: Path, rounds: int) -> dict[str, float]:
    config = CudaConfig(headroom_mib=1)
    backend = CudaBackend(config, folder, lambda: {JOB: Owner(os.getuid())})
    for device, sizes in SIZES.items():
        for mib in sizes:
            stub.start(JOB, f"{device}:{mib}")
    target = Target(JOB, tuple(SIZES), 60.0)
    out_s, in_s = [], []
    try:
        for number in range(rounds + 1):
            stub.set(speed=SPEED if number else 0)  # the first starts the helpers
            for verb, times in ((backend.snapshot, out_s), (backend.restore, in_s)):
                start = time.monotonic()
                outcome = await verb(target)
                if not outcome.ok:
                    raise RuntimeError(outcome.error)
                times.append(time.monotonic() - start)
    finally:
        await backend.close()
    wall = statistics.median(out_s[1:])
    by_device = {device: sum(sizes) * MIB / SPEED for device, sizes in SIZES.items()}
    slowest, total = max(by_device.values()), sum(by_device.values())
    return {
        "cuda_snapshot_s": round(wall, 3),
        "cuda_restore_s": round(statistics.median(in_s[1:]), 3),
        "cuda_slowest_device_s": round(slowest, 3),
        "cuda_sum_of_devices_s": round(total, 3),
        "cuda_snapshot_over_slowest_device": round(wall / slowest, 3),
        "cuda_restore_over_slowest_device": round(statistics.median(in_s[1:]) / slowest, 3),
        "cuda_overhead_s": round(statistics.median([out_s[0], in_s[0]]), 3),
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))
