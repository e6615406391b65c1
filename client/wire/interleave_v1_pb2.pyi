from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AcquireRequest(_message.Message):
    __slots__ = ("job_id", "group", "phase", "also", "independent", "patience_s")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    ALSO_FIELD_NUMBER: _ClassVar[int]
    INDEPENDENT_FIELD_NUMBER: _ClassVar[int]
    PATIENCE_S_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    group: str
    phase: str
    also: _containers.RepeatedScalarFieldContainer[str]
    independent: bool
    patience_s: float
    def __init__(self, job_id: _Optional[str] = ..., group: _Optional[str] = ..., phase: _Optional[str] = ..., also: _Optional[_Iterable[str]] = ..., independent: bool = ..., patience_s: _Optional[float] = ...) -> None: ...

class AcquireUpdate(_message.Message):
    __slots__ = ("queued", "granted")
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    queued: Queued
    granted: Granted
    def __init__(self, queued: _Optional[_Union[Queued, _Mapping]] = ..., granted: _Optional[_Union[Granted, _Mapping]] = ...) -> None: ...

class Queued(_message.Message):
    __slots__ = ("ahead", "reason", "expected_s")
    AHEAD_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_S_FIELD_NUMBER: _ClassVar[int]
    ahead: int
    reason: str
    expected_s: float
    def __init__(self, ahead: _Optional[int] = ..., reason: _Optional[str] = ..., expected_s: _Optional[float] = ...) -> None: ...

class Granted(_message.Message):
    __slots__ = ("epoch", "waited_s", "context_restored", "switch_s", "also")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    WAITED_S_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_RESTORED_FIELD_NUMBER: _ClassVar[int]
    SWITCH_S_FIELD_NUMBER: _ClassVar[int]
    ALSO_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    waited_s: float
    context_restored: bool
    switch_s: float
    also: _containers.RepeatedCompositeFieldContainer[GroupLease]
    def __init__(self, epoch: _Optional[int] = ..., waited_s: _Optional[float] = ..., context_restored: bool = ..., switch_s: _Optional[float] = ..., also: _Optional[_Iterable[_Union[GroupLease, _Mapping]]] = ...) -> None: ...

class GroupLease(_message.Message):
    __slots__ = ("group", "epoch")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    group: str
    epoch: int
    def __init__(self, group: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class NoticesRequest(_message.Message):
    __slots__ = ("job_id", "group")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    group: str
    def __init__(self, job_id: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class HolderNotice(_message.Message):
    __slots__ = ("waiting", "by")
    WAITING_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    waiting: int
    by: float
    def __init__(self, waiting: _Optional[int] = ..., by: _Optional[float] = ...) -> None: ...

class RevokeRequest(_message.Message):
    __slots__ = ("job_id", "group")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    group: str
    def __init__(self, job_id: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class RevokeReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClearRequest(_message.Message):
    __slots__ = ("job_id", "group", "keep")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    group: str
    keep: bool
    def __init__(self, job_id: _Optional[str] = ..., group: _Optional[str] = ..., keep: bool = ...) -> None: ...

class ClearReply(_message.Message):
    __slots__ = ("discarded",)
    DISCARDED_FIELD_NUMBER: _ClassVar[int]
    discarded: _containers.RepeatedCompositeFieldContainer[ContextStatus]
    def __init__(self, discarded: _Optional[_Iterable[_Union[ContextStatus, _Mapping]]] = ...) -> None: ...

class CancelOperationRequest(_message.Message):
    __slots__ = ("job_id", "group")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    group: str
    def __init__(self, job_id: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class CancelOperationReply(_message.Message):
    __slots__ = ("contexts",)
    CONTEXTS_FIELD_NUMBER: _ClassVar[int]
    contexts: _containers.RepeatedCompositeFieldContainer[ContextStatus]
    def __init__(self, contexts: _Optional[_Iterable[_Union[ContextStatus, _Mapping]]] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: str
    def __init__(self, node: _Optional[str] = ...) -> None: ...

class DrainUpdate(_message.Message):
    __slots__ = ("job_id", "ok", "error", "bytes", "seconds", "under_way")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    OK_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    UNDER_WAY_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    ok: bool
    error: str
    bytes: int
    seconds: float
    under_way: bool
    def __init__(self, job_id: _Optional[str] = ..., ok: bool = ..., error: _Optional[str] = ..., bytes: _Optional[int] = ..., seconds: _Optional[float] = ..., under_way: bool = ...) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ("pid", "stdout", "stderr")
    PID_FIELD_NUMBER: _ClassVar[int]
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    pid: int
    stdout: int
    stderr: int
    def __init__(self, pid: _Optional[int] = ..., stdout: _Optional[int] = ..., stderr: _Optional[int] = ...) -> None: ...

class ResumeUpdate(_message.Message):
    __slots__ = ("pid", "exit_code")
    PID_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    pid: int
    exit_code: int
    def __init__(self, pid: _Optional[int] = ..., exit_code: _Optional[int] = ...) -> None: ...

class WatchUpdate(_message.Message):
    __slots__ = ("groups", "gone")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[GroupStatus]
    gone: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, groups: _Optional[_Iterable[_Union[GroupStatus, _Mapping]]] = ..., gone: _Optional[_Iterable[str]] = ...) -> None: ...

class YieldRequest(_message.Message):
    __slots__ = ("job_id", "group", "epoch", "call", "pause")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    PAUSE_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    group: str
    epoch: int
    call: str
    pause: bool
    def __init__(self, job_id: _Optional[str] = ..., group: _Optional[str] = ..., epoch: _Optional[int] = ..., call: _Optional[str] = ..., pause: bool = ...) -> None: ...

class YieldReply(_message.Message):
    __slots__ = ("pending_waiters",)
    PENDING_WAITERS_FIELD_NUMBER: _ClassVar[int]
    pending_waiters: int
    def __init__(self, pending_waiters: _Optional[int] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("groups", "nodes", "differences", "version", "now")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[GroupStatus]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeStatus]
    differences: _containers.RepeatedCompositeFieldContainer[BookDifference]
    version: str
    now: float
    def __init__(self, groups: _Optional[_Iterable[_Union[GroupStatus, _Mapping]]] = ..., nodes: _Optional[_Iterable[_Union[NodeStatus, _Mapping]]] = ..., differences: _Optional[_Iterable[_Union[BookDifference, _Mapping]]] = ..., version: _Optional[str] = ..., now: _Optional[float] = ...) -> None: ...

class BookDifference(_message.Message):
    __slots__ = ("node", "gres", "booked", "used")
    NODE_FIELD_NUMBER: _ClassVar[int]
    GRES_FIELD_NUMBER: _ClassVar[int]
    BOOKED_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    node: str
    gres: str
    booked: int
    used: int
    def __init__(self, node: _Optional[str] = ..., gres: _Optional[str] = ..., booked: _Optional[int] = ..., used: _Optional[int] = ...) -> None: ...

class GroupStatus(_message.Message):
    __slots__ = ("name", "state", "state_since", "members")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STATE_SINCE_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: str
    state_since: float
    members: _containers.RepeatedCompositeFieldContainer[MemberStatus]
    def __init__(self, name: _Optional[str] = ..., state: _Optional[str] = ..., state_since: _Optional[float] = ..., members: _Optional[_Iterable[_Union[MemberStatus, _Mapping]]] = ...) -> None: ...

class MemberStatus(_message.Message):
    __slots__ = ("job_id", "user", "role", "epoch", "held_since", "phase", "queue_place", "waiting_since", "fault", "contexts", "priority", "reason", "expected_start")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HELD_SINCE_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_PLACE_FIELD_NUMBER: _ClassVar[int]
    WAITING_SINCE_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    CONTEXTS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_START_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    user: str
    role: str
    epoch: int
    held_since: float
    phase: str
    queue_place: int
    waiting_since: float
    fault: str
    contexts: _containers.RepeatedCompositeFieldContainer[ContextStatus]
    priority: int
    reason: str
    expected_start: float
    def __init__(self, job_id: _Optional[str] = ..., user: _Optional[str] = ..., role: _Optional[str] = ..., epoch: _Optional[int] = ..., held_since: _Optional[float] = ..., phase: _Optional[str] = ..., queue_place: _Optional[int] = ..., waiting_since: _Optional[float] = ..., fault: _Optional[str] = ..., contexts: _Optional[_Iterable[_Union[ContextStatus, _Mapping]]] = ..., priority: _Optional[int] = ..., reason: _Optional[str] = ..., expected_start: _Optional[float] = ...) -> None: ...

class ContextStatus(_message.Message):
    __slots__ = ("node", "devices", "state", "bytes")
    NODE_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    node: str
    devices: _containers.RepeatedScalarFieldContainer[int]
    state: str
    bytes: int
    def __init__(self, node: _Optional[str] = ..., devices: _Optional[_Iterable[int]] = ..., state: _Optional[str] = ..., bytes: _Optional[int] = ...) -> None: ...

class NodeStatus(_message.Message):
    __slots__ = ("name", "connected", "since", "devices", "trespasses", "trespass_count")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    TRESPASSES_FIELD_NUMBER: _ClassVar[int]
    TRESPASS_COUNT_FIELD_NUMBER: _ClassVar[int]
    name: str
    connected: bool
    since: float
    devices: int
    trespasses: _containers.RepeatedCompositeFieldContainer[Trespass]
    trespass_count: int
    def __init__(self, name: _Optional[str] = ..., connected: bool = ..., since: _Optional[float] = ..., devices: _Optional[int] = ..., trespasses: _Optional[_Iterable[_Union[Trespass, _Mapping]]] = ..., trespass_count: _Optional[int] = ...) -> None: ...

class Trespass(_message.Message):
    __slots__ = ("device", "pid", "job_id", "since", "reason")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    device: int
    pid: int
    job_id: str
    since: float
    reason: str
    def __init__(self, device: _Optional[int] = ..., pid: _Optional[int] = ..., job_id: _Optional[str] = ..., since: _Optional[float] = ..., reason: _Optional[str] = ...) -> None: ...

class MeetRequest(_message.Message):
    __slots__ = ("job_id", "place", "round", "rank", "ranks", "word", "before")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    WORD_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    place: str
    round: int
    rank: int
    ranks: int
    word: str
    before: str
    def __init__(self, job_id: _Optional[str] = ..., place: _Optional[str] = ..., round: _Optional[int] = ..., rank: _Optional[int] = ..., ranks: _Optional[int] = ..., word: _Optional[str] = ..., before: _Optional[str] = ...) -> None: ...

class MeetReply(_message.Message):
    __slots__ = ("word",)
    WORD_FIELD_NUMBER: _ClassVar[int]
    word: str
    def __init__(self, word: _Optional[str] = ...) -> None: ...

class OpenPageRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class OpenPageReply(_message.Message):
    __slots__ = ("url", "until", "loopback")
    URL_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    LOOPBACK_FIELD_NUMBER: _ClassVar[int]
    url: str
    until: float
    loopback: bool
    def __init__(self, url: _Optional[str] = ..., until: _Optional[float] = ..., loopback: bool = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class ExplainReply(_message.Message):
    __slots__ = ("lines", "at")
    LINES_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    lines: _containers.RepeatedScalarFieldContainer[str]
    at: float
    def __init__(self, lines: _Optional[_Iterable[str]] = ..., at: _Optional[float] = ...) -> None: ...

class ListSlicesRequest(_message.Message):
    __slots__ = ("job_ids", "users", "groups", "states", "start", "end", "accounts", "partitions", "nodes", "summed")
    JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    ACCOUNTS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    SUMMED_FIELD_NUMBER: _ClassVar[int]
    job_ids: _containers.RepeatedScalarFieldContainer[str]
    users: _containers.RepeatedScalarFieldContainer[str]
    groups: _containers.RepeatedScalarFieldContainer[str]
    states: _containers.RepeatedScalarFieldContainer[str]
    start: float
    end: float
    accounts: _containers.RepeatedScalarFieldContainer[str]
    partitions: _containers.RepeatedScalarFieldContainer[str]
    nodes: _containers.RepeatedScalarFieldContainer[str]
    summed: bool
    def __init__(self, job_ids: _Optional[_Iterable[str]] = ..., users: _Optional[_Iterable[str]] = ..., groups: _Optional[_Iterable[str]] = ..., states: _Optional[_Iterable[str]] = ..., start: _Optional[float] = ..., end: _Optional[float] = ..., accounts: _Optional[_Iterable[str]] = ..., partitions: _Optional[_Iterable[str]] = ..., nodes: _Optional[_Iterable[str]] = ..., summed: bool = ...) -> None: ...

class SlicePage(_message.Message):
    __slots__ = ("slices", "days")
    SLICES_FIELD_NUMBER: _ClassVar[int]
    DAYS_FIELD_NUMBER: _ClassVar[int]
    slices: _containers.RepeatedCompositeFieldContainer[Slice]
    days: _containers.RepeatedCompositeFieldContainer[DaySum]
    def __init__(self, slices: _Optional[_Iterable[_Union[Slice, _Mapping]]] = ..., days: _Optional[_Iterable[_Union[DaySum, _Mapping]]] = ...) -> None: ...

class DaySum(_message.Message):
    __slots__ = ("day", "slice", "turns", "switches", "faults", "held_s", "waited_s", "max_wait_s", "overhead_s", "held_device_s", "waited_device_s", "exclusive_device_s", "occupied_device_s", "foretold", "expected_s", "missed_s")
    DAY_FIELD_NUMBER: _ClassVar[int]
    SLICE_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    FAULTS_FIELD_NUMBER: _ClassVar[int]
    HELD_S_FIELD_NUMBER: _ClassVar[int]
    WAITED_S_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_S_FIELD_NUMBER: _ClassVar[int]
    OVERHEAD_S_FIELD_NUMBER: _ClassVar[int]
    HELD_DEVICE_S_FIELD_NUMBER: _ClassVar[int]
    WAITED_DEVICE_S_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_DEVICE_S_FIELD_NUMBER: _ClassVar[int]
    OCCUPIED_DEVICE_S_FIELD_NUMBER: _ClassVar[int]
    FORETOLD_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_S_FIELD_NUMBER: _ClassVar[int]
    MISSED_S_FIELD_NUMBER: _ClassVar[int]
    day: str
    slice: Slice
    turns: int
    switches: int
    faults: int
    held_s: float
    waited_s: float
    max_wait_s: float
    overhead_s: float
    held_device_s: float
    waited_device_s: float
    exclusive_device_s: float
    occupied_device_s: float
    foretold: int
    expected_s: float
    missed_s: float
    def __init__(self, day: _Optional[str] = ..., slice: _Optional[_Union[Slice, _Mapping]] = ..., turns: _Optional[int] = ..., switches: _Optional[int] = ..., faults: _Optional[int] = ..., held_s: _Optional[float] = ..., waited_s: _Optional[float] = ..., max_wait_s: _Optional[float] = ..., overhead_s: _Optional[float] = ..., held_device_s: _Optional[float] = ..., waited_device_s: _Optional[float] = ..., exclusive_device_s: _Optional[float] = ..., occupied_device_s: _Optional[float] = ..., foretold: _Optional[int] = ..., expected_s: _Optional[float] = ..., missed_s: _Optional[float] = ...) -> None: ...

class Slice(_message.Message):
    __slots__ = ("job_id", "job_name", "user", "account", "partition", "group", "role", "phase", "backend", "nodes", "devices", "state", "epoch", "requested", "start", "end", "switched", "switch_s", "snapshot_s", "restore_s", "switch_bytes", "off_s", "share", "partners", "comment", "expected_s")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_NAME_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    SWITCHED_FIELD_NUMBER: _ClassVar[int]
    SWITCH_S_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_S_FIELD_NUMBER: _ClassVar[int]
    RESTORE_S_FIELD_NUMBER: _ClassVar[int]
    SWITCH_BYTES_FIELD_NUMBER: _ClassVar[int]
    OFF_S_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    PARTNERS_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_S_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    job_name: str
    user: str
    account: str
    partition: str
    group: str
    role: str
    phase: str
    backend: str
    nodes: str
    devices: _containers.RepeatedScalarFieldContainer[str]
    state: str
    epoch: int
    requested: float
    start: float
    end: float
    switched: bool
    switch_s: float
    snapshot_s: float
    restore_s: float
    switch_bytes: int
    off_s: float
    share: float
    partners: _containers.RepeatedScalarFieldContainer[str]
    comment: str
    expected_s: float
    def __init__(self, job_id: _Optional[str] = ..., job_name: _Optional[str] = ..., user: _Optional[str] = ..., account: _Optional[str] = ..., partition: _Optional[str] = ..., group: _Optional[str] = ..., role: _Optional[str] = ..., phase: _Optional[str] = ..., backend: _Optional[str] = ..., nodes: _Optional[str] = ..., devices: _Optional[_Iterable[str]] = ..., state: _Optional[str] = ..., epoch: _Optional[int] = ..., requested: _Optional[float] = ..., start: _Optional[float] = ..., end: _Optional[float] = ..., switched: bool = ..., switch_s: _Optional[float] = ..., snapshot_s: _Optional[float] = ..., restore_s: _Optional[float] = ..., switch_bytes: _Optional[int] = ..., off_s: _Optional[float] = ..., share: _Optional[float] = ..., partners: _Optional[_Iterable[str]] = ..., comment: _Optional[str] = ..., expected_s: _Optional[float] = ...) -> None: ...

class Device(_message.Message):
    __slots__ = ("index", "uuid", "type", "memory_bytes")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    index: int
    uuid: str
    type: str
    memory_bytes: int
    def __init__(self, index: _Optional[int] = ..., uuid: _Optional[str] = ..., type: _Optional[str] = ..., memory_bytes: _Optional[int] = ...) -> None: ...

class JobReport(_message.Message):
    __slots__ = ("job_id", "attempt", "uid", "user", "account", "partition", "name", "group", "role", "backend", "devices", "context", "bytes", "token_sha256", "fault", "nodes", "priority", "attendance", "restarts", "started", "resumed_token_sha256", "being_saved", "profile", "max_slowdown", "caution")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    TOKEN_SHA256_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    ATTENDANCE_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    RESUMED_TOKEN_SHA256_FIELD_NUMBER: _ClassVar[int]
    BEING_SAVED_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    MAX_SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    CAUTION_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    attempt: str
    uid: int
    user: str
    account: str
    partition: str
    name: str
    group: str
    role: str
    backend: str
    devices: _containers.RepeatedScalarFieldContainer[int]
    context: str
    bytes: int
    token_sha256: bytes
    fault: str
    nodes: _containers.RepeatedScalarFieldContainer[str]
    priority: int
    attendance: str
    restarts: int
    started: float
    resumed_token_sha256: bytes
    being_saved: bool
    profile: str
    max_slowdown: int
    caution: str
    def __init__(self, job_id: _Optional[str] = ..., attempt: _Optional[str] = ..., uid: _Optional[int] = ..., user: _Optional[str] = ..., account: _Optional[str] = ..., partition: _Optional[str] = ..., name: _Optional[str] = ..., group: _Optional[str] = ..., role: _Optional[str] = ..., backend: _Optional[str] = ..., devices: _Optional[_Iterable[int]] = ..., context: _Optional[str] = ..., bytes: _Optional[int] = ..., token_sha256: _Optional[bytes] = ..., fault: _Optional[str] = ..., nodes: _Optional[_Iterable[str]] = ..., priority: _Optional[int] = ..., attendance: _Optional[str] = ..., restarts: _Optional[int] = ..., started: _Optional[float] = ..., resumed_token_sha256: _Optional[bytes] = ..., being_saved: bool = ..., profile: _Optional[str] = ..., max_slowdown: _Optional[int] = ..., caution: _Optional[str] = ...) -> None: ...

class AgentMessage(_message.Message):
    __slots__ = ("hello", "started", "over", "drained", "starting", "uses", "done")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    STARTING_FIELD_NUMBER: _ClassVar[int]
    USES_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    started: JobReport
    over: JobOver
    drained: DrainUpdate
    starting: JobStarting
    uses: Uses
    done: _containers.RepeatedCompositeFieldContainer[OperationDone]
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., started: _Optional[_Union[JobReport, _Mapping]] = ..., over: _Optional[_Union[JobOver, _Mapping]] = ..., drained: _Optional[_Union[DrainUpdate, _Mapping]] = ..., starting: _Optional[_Union[JobStarting, _Mapping]] = ..., uses: _Optional[_Union[Uses, _Mapping]] = ..., done: _Optional[_Iterable[_Union[OperationDone, _Mapping]]] = ...) -> None: ...

class JobStarting(_message.Message):
    __slots__ = ("job_id", "question")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    question: int
    def __init__(self, job_id: _Optional[str] = ..., question: _Optional[int] = ...) -> None: ...

class Uses(_message.Message):
    __slots__ = ("uses",)
    USES_FIELD_NUMBER: _ClassVar[int]
    uses: _containers.RepeatedCompositeFieldContainer[Use]
    def __init__(self, uses: _Optional[_Iterable[_Union[Use, _Mapping]]] = ...) -> None: ...

class Use(_message.Message):
    __slots__ = ("device", "pid", "job_id", "working")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    WORKING_FIELD_NUMBER: _ClassVar[int]
    device: int
    pid: int
    job_id: str
    working: bool
    def __init__(self, device: _Optional[int] = ..., pid: _Optional[int] = ..., job_id: _Optional[str] = ..., working: bool = ...) -> None: ...

class AttendRequest(_message.Message):
    __slots__ = ("pid",)
    PID_FIELD_NUMBER: _ClassVar[int]
    pid: int
    def __init__(self, pid: _Optional[int] = ...) -> None: ...

class AttendReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchIdleRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class IdleUpdate(_message.Message):
    __slots__ = ("idle_s",)
    IDLE_S_FIELD_NUMBER: _ClassVar[int]
    idle_s: float
    def __init__(self, idle_s: _Optional[float] = ...) -> None: ...

class RegisterEndpointsRequest(_message.Message):
    __slots__ = ("app", "urls", "discard")
    APP_FIELD_NUMBER: _ClassVar[int]
    URLS_FIELD_NUMBER: _ClassVar[int]
    DISCARD_FIELD_NUMBER: _ClassVar[int]
    app: str
    urls: _containers.RepeatedScalarFieldContainer[str]
    discard: bool
    def __init__(self, app: _Optional[str] = ..., urls: _Optional[_Iterable[str]] = ..., discard: bool = ...) -> None: ...

class RegisterEndpointsReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Hello(_message.Message):
    __slots__ = ("node", "version", "devices", "jobs", "trespass", "sent", "host_bytes", "cancels")
    NODE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    TRESPASS_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    HOST_BYTES_FIELD_NUMBER: _ClassVar[int]
    CANCELS_FIELD_NUMBER: _ClassVar[int]
    node: str
    version: str
    devices: _containers.RepeatedCompositeFieldContainer[Device]
    jobs: _containers.RepeatedCompositeFieldContainer[JobReport]
    trespass: str
    sent: float
    host_bytes: int
    cancels: bool
    def __init__(self, node: _Optional[str] = ..., version: _Optional[str] = ..., devices: _Optional[_Iterable[_Union[Device, _Mapping]]] = ..., jobs: _Optional[_Iterable[_Union[JobReport, _Mapping]]] = ..., trespass: _Optional[str] = ..., sent: _Optional[float] = ..., host_bytes: _Optional[int] = ..., cancels: bool = ...) -> None: ...

class JobOver(_message.Message):
    __slots__ = ("job_id", "attempt")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    attempt: str
    def __init__(self, job_id: _Optional[str] = ..., attempt: _Optional[str] = ...) -> None: ...

class OperationDone(_message.Message):
    __slots__ = ("operation_id", "job_id", "ok", "context", "bytes", "seconds", "error")
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    OK_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    operation_id: str
    job_id: str
    ok: bool
    context: str
    bytes: int
    seconds: float
    error: str
    def __init__(self, operation_id: _Optional[str] = ..., job_id: _Optional[str] = ..., ok: bool = ..., context: _Optional[str] = ..., bytes: _Optional[int] = ..., seconds: _Optional[float] = ..., error: _Optional[str] = ...) -> None: ...

class AgentOrder(_message.Message):
    __slots__ = ("welcome", "reserve", "forget", "registered", "stop", "drain", "cancel", "operate")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    RESERVE_FIELD_NUMBER: _ClassVar[int]
    FORGET_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    OPERATE_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    reserve: Reservation
    forget: Forget
    registered: Registered
    stop: Stop
    drain: Drain
    cancel: Cancel
    operate: _containers.RepeatedCompositeFieldContainer[Operate]
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., reserve: _Optional[_Union[Reservation, _Mapping]] = ..., forget: _Optional[_Union[Forget, _Mapping]] = ..., registered: _Optional[_Union[Registered, _Mapping]] = ..., stop: _Optional[_Union[Stop, _Mapping]] = ..., drain: _Optional[_Union[Drain, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ..., operate: _Optional[_Iterable[_Union[Operate, _Mapping]]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("cluster", "reservations")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    RESERVATIONS_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    reservations: _containers.RepeatedCompositeFieldContainer[Reservation]
    def __init__(self, cluster: _Optional[str] = ..., reservations: _Optional[_Iterable[_Union[Reservation, _Mapping]]] = ...) -> None: ...

class Reservation(_message.Message):
    __slots__ = ("job_id", "group", "role", "devices", "lane", "nodes", "question")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    group: str
    role: str
    devices: _containers.RepeatedScalarFieldContainer[int]
    lane: str
    nodes: _containers.RepeatedScalarFieldContainer[str]
    question: int
    def __init__(self, job_id: _Optional[str] = ..., group: _Optional[str] = ..., role: _Optional[str] = ..., devices: _Optional[_Iterable[int]] = ..., lane: _Optional[str] = ..., nodes: _Optional[_Iterable[str]] = ..., question: _Optional[int] = ...) -> None: ...

class Forget(_message.Message):
    __slots__ = ("job_id", "question")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    question: int
    def __init__(self, job_id: _Optional[str] = ..., question: _Optional[int] = ...) -> None: ...

class Operate(_message.Message):
    __slots__ = ("operation_id", "verb", "job_id", "attempt", "beside", "after", "traceparent")
    class Verb(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        VERB_UNSPECIFIED: _ClassVar[Operate.Verb]
        SNAPSHOT: _ClassVar[Operate.Verb]
        RESTORE: _ClassVar[Operate.Verb]
        DISCARD: _ClassVar[Operate.Verb]
    VERB_UNSPECIFIED: Operate.Verb
    SNAPSHOT: Operate.Verb
    RESTORE: Operate.Verb
    DISCARD: Operate.Verb
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    VERB_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    BESIDE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    operation_id: str
    verb: Operate.Verb
    job_id: str
    attempt: str
    beside: bool
    after: _containers.RepeatedScalarFieldContainer[str]
    traceparent: str
    def __init__(self, operation_id: _Optional[str] = ..., verb: _Optional[_Union[Operate.Verb, str]] = ..., job_id: _Optional[str] = ..., attempt: _Optional[str] = ..., beside: bool = ..., after: _Optional[_Iterable[str]] = ..., traceparent: _Optional[str] = ...) -> None: ...

class Stop(_message.Message):
    __slots__ = ("job_id", "attempt", "pid")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    attempt: str
    pid: int
    def __init__(self, job_id: _Optional[str] = ..., attempt: _Optional[str] = ..., pid: _Optional[int] = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ("job_id", "operation_id")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    operation_id: str
    def __init__(self, job_id: _Optional[str] = ..., operation_id: _Optional[str] = ...) -> None: ...

class Drain(_message.Message):
    __slots__ = ("job_id", "attempt")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    attempt: str
    def __init__(self, job_id: _Optional[str] = ..., attempt: _Optional[str] = ...) -> None: ...

class Registered(_message.Message):
    __slots__ = ("job_id", "attempt")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    attempt: str
    def __init__(self, job_id: _Optional[str] = ..., attempt: _Optional[str] = ...) -> None: ...
