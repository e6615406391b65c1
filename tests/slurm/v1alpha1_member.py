"""A job of the tests that speaks the v1alpha1 services only, as existing RL clients do.

Run as `python v1alpha1_member.py FILE`; its first turn ends when FILE is there.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import grpc
import numpy as np

from slurm_interleave.client.sim import SimDevice
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2 as agent_pb
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2_grpc as agent_rpc
from slurm_interleave.client.wire import timeslice_orchestrator_v1alpha1_pb2 as pb
from slurm_interleave.client.wire import timeslice_orchestrator_v1alpha1_pb2_grpc as rpc

TURNS = 3


def main() -> None:
    who = {"job_id": os.environ["TIMESLICE_JOB_ID"], "group_id": os.environ["TIMESLICE_GROUP"]}
    device, state = SimDevice.open(), None
    with grpc.insecure_channel(os.environ["TIMESLICE_ORCH_ADDR"]) as channel:
        lock = rpc.TimeSliceOrchestratorServiceStub(channel)
        for _ in range(TURNS):
            granted = lock.Acquire(pb.AcquireRequest(**who), timeout=90)
            if state is None:
                state = device.put(np.ones(150 << 17))
            device.run("work", np.sum, state, seconds=0.2)
            while not Path(sys.argv[1]).exists():
                time.sleep(0.05)
            status = lock.GetGroupStatus(pb.GetGroupStatusRequest(group_id=who["group_id"])).group
            lock.Yield(pb.YieldRequest(**who))
            tell(restored=granted.context_restored, holder=status.locking_job, state=status.group_state)
    with grpc.insecure_channel(os.environ["TIMESLICE_AGENT_ADDR"]) as channel:
        seen = agent_rpc.SnapshotAgentServiceStub(channel).Status(agent_pb.StatusRequest())
        tell(jobs=[job.job_id for job in seen.job_statuses])


def tell(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    main()
