"""The v1alpha1 wire as existing clients have it: each message, enum and method, with numbers and types."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2 as agent_wire
from slurm_interleave.client.wire import timeslice_orchestrator_v1alpha1_pb2 as lock_wire

LOCK = "timeslice_orchestrator.v1alpha1"
AGENT = "snapshot_agent.v1alpha1"
_MOVE = {
    "job_id": "1 string",
    "group": "2 string",
    "backend": "3 Backend",
    "backend_config": "4 BackendConfig",
}
_MOVED = {"operation_id": "1 string"}
_TARGET = {"explicit_target": "1 ProcessTarget"}
# Each field with its number and type, `*` for repeated, `?` for optional, then its choice, if it is in one.
WIRE: dict[Any, dict[str, dict[str, Any]]] = {
    lock_wire: {
        "AcquireRequest": {"job_id": "1 string", "group_id": "2 string"},
        "AcquireResponse": {"success": "1 bool", "waited_ms": "2 int64", "context_restored": "3 bool"},
        "YieldRequest": {"job_id": "1 string", "group_id": "2 string"},
        "YieldResponse": {"success": "1 bool", "pending_waiters": "2 int64", "snapshot_deferred": "3 bool"},
        "ListGroupsRequest": {},
        "ListGroupsResponse": {"group_ids": "1 string*"},
        "GetGroupStatusRequest": {"group_id": "1 string"},
        "GetGroupStatusResponse": {
            "group": "1 GroupStatus",
            "agent_job_states": "2 SnapshotAgentJobState*",
        },
        "GroupStatus": {
            "group_id": "1 string",
            "group_state": "2 GroupStatus.State",
            "state_timestamp": "3 google.protobuf.Timestamp",
            "locking_job": "4 string",
            "active_job": "5 string",
            "waiter_queue_depth": "6 int64",
            "loaded_job": "7 string",
        },
        "GroupStatus.State": {
            "STATE_UNSPECIFIED": 0,
            "STATE_UNKNOWN": 1,
            "STATE_IDLE": 2,
            "STATE_IDLE_YIELDED": 3,
            "STATE_LOCKED": 4,
            "STATE_SWITCHING": 5,
        },
        "SnapshotAgentJobState": {
            "agent": "1 string",
            "job_state": "2 SnapshotAgentJobState.State",
            "job_id": "3 string",
        },
        "SnapshotAgentJobState.State": {
            "STATE_UNSPECIFIED": 0,
            "STATE_IDLE": 1,
            "STATE_RUNNING": 2,
            "STATE_TRANSITIONING": 3,
            "STATE_SAVED": 4,
            "STATE_FAULTED": 5,
        },
    },
    agent_wire: {
        "Backend": {"BACKEND_UNSPECIFIED": 0, "BACKEND_CUDA": 1},
        "OperationStatus": {
            "OPERATION_STATUS_UNSPECIFIED": 0,
            "OPERATION_STATUS_PENDING": 1,
            "OPERATION_STATUS_COMPLETE": 2,
            "OPERATION_STATUS_FAILED": 3,
        },
        "JobState": {
            "JOB_STATE_UNSPECIFIED": 0,
            "JOB_STATE_IDLE": 1,
            "JOB_STATE_RUNNING": 2,
            "JOB_STATE_TRANSITIONING": 3,
            "JOB_STATE_SAVED": 4,
            "JOB_STATE_FAULTED": 5,
        },
        "App": {"APP_UNSPECIFIED": 0, "APP_VLLM": 1, "APP_SGLANG": 2},
        "SuspendMode": {
            "SUSPEND_MODE_UNSPECIFIED": 0,
            "SUSPEND_MODE_OFFLOAD": 1,
            "SUSPEND_MODE_DISCARD": 2,
        },
        "SnapshotRequest": _MOVE,
        "RestoreRequest": _MOVE,
        "SnapshotResponse": _MOVED,
        "RestoreResponse": _MOVED,
        "GetOperationRequest": {"operation_id": "1 string"},
        "GetOperationResponse": {
            "status": "1 OperationStatus",
            "storage_bytes": "2 int64?",
            "snapshot_device_bytes": "3 int64?",
            "elapsed_ms": "4 int64",
            "error": "5 string?",
        },
        "StatusRequest": {},
        "StatusResponse": {"job_statuses": "1 JobStatus*", "accelerator_statuses": "2 AcceleratorStatus*"},
        "JobStatus": {"job_id": "1 string", "state": "2 JobState"},
        "AcceleratorStatus": {
            "id": "1 string",
            "memory_used_bytes": "2 int64",
            "memory_total_bytes": "3 int64",
        },
        "ProcessTarget": {"pids": "1 int32*"},
        "CudaBackendConfig": _TARGET,
        "DirectMemoryBackendConfig": _TARGET,
        "AppEndpointConfig": {
            "app": "1 App",
            "endpoints": "2 string*",
            "mode": "3 SuspendMode",
            "tags": "4 string*",
        },
        "AppChannelConfig": {"mode": "1 SuspendMode", "tags": "2 string*"},
        "MemoryRegionsBackendConfig": {"regions": "1 MemoryRegion*", "snapshot_name": "2 string"},
        "MemoryRegion": {"pid": "1 int32", "address": "2 uint64", "size_bytes": "3 uint64"},
        "BackendConfig": {
            "cuda": "1 CudaBackendConfig backend",
            "app_endpoint": "2 AppEndpointConfig backend",
            "app_channel": "3 AppChannelConfig backend",
            "direct_memory": "4 DirectMemoryBackendConfig backend",
            "memory_regions": "5 MemoryRegionsBackendConfig backend",
        },
        "WorkloadMessage": {"register": "1 RegisterWorkload message", "result": "2 CommandResult message"},
        "RegisterWorkload": {
            "job_id": "1 string",
            "group": "2 string",
            "capabilities": "3 WorkloadCapabilities",
        },
        "WorkloadCapabilities": {
            "supported_modes": "1 SuspendMode*",
            "default_mode": "2 SuspendMode",
            "tags": "3 string*",
        },
        "CommandResult": {"command_id": "1 string", "ok": "2 bool", "error": "3 string"},
        "AgentCommand": {
            "command_id": "1 string",
            "snapshot": "2 SnapshotCommand command",
            "restore": "3 RestoreCommand command",
        },
        "SnapshotCommand": {"mode": "1 SuspendMode", "tags": "2 string*"},
        "RestoreCommand": {"tags": "1 string*"},
    },
}
METHODS = {
    lock_wire: ("TimeSliceOrchestratorService", ["Acquire", "Yield", "ListGroups", "GetGroupStatus"]),
    agent_wire: (
        "SnapshotAgentService",
        ["Snapshot", "Restore", "GetOperation", "Status", "WorkloadChannel"],
    ),
}
_TYPES = {
    number: name.removeprefix("TYPE_").lower()
    for name, number in vars(FieldDescriptor).items()
    if name.startswith("TYPE_")
}


def described(wire: Any) -> dict[str, dict[str, Any]]:
    """Return all messages and enums of a file in the form of `WIRE`."""
    found: dict[str, dict[str, Any]] = {}
    prefix = wire.DESCRIPTOR.package + "."

    def enum(descriptor: Any) -> None:
        values = {value.name: value.number for value in descriptor.values}
        found[descriptor.full_name.removeprefix(prefix)] = values

    def message(descriptor: Any) -> None:
        found[descriptor.full_name.removeprefix(prefix)] = {f.name: field(f) for f in descriptor.fields}
        for nested in descriptor.nested_types:
            message(nested)
        for nested in descriptor.enum_types:
            enum(nested)

    def field(descriptor: Any) -> str:
        kind = descriptor.message_type or descriptor.enum_type
        name = kind.full_name.removeprefix(prefix) if kind else _TYPES[descriptor.type]
        oneof = descriptor.containing_oneof
        optional = oneof is not None and oneof.name == f"_{descriptor.name}"
        marks = "*" if _is_repeated(descriptor) else "?" if optional else ""
        choice = f" {oneof.name}" if oneof is not None and not optional else ""
        return f"{descriptor.number} {name}{marks}{choice}"

    for descriptor in wire.DESCRIPTOR.message_types_by_name.values():
        message(descriptor)
    for descriptor in wire.DESCRIPTOR.enum_types_by_name.values():
        enum(descriptor)
    return found


def _is_repeated(descriptor: Any) -> bool:
    """Tell it under every protobuf: `label` is gone in the newest, `is_repeated` is missing in the oldest."""
    known = getattr(descriptor, "is_repeated", None)
    return bool(descriptor.label == FieldDescriptor.LABEL_REPEATED if known is None else known)
