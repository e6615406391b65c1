"""The columns of `sinterleave`; its headings, `--helpformat`, JSON keys and `-o` all read this list."""

from __future__ import annotations

from slurm_interleave.client.cli.fields import (
    BYTES,
    COUNT,
    DURATION,
    HOURS,
    LIST,
    MAYBE_SECONDS,
    PERCENT,
    RIGHT_TEXT,
    SECONDS,
    TEXT,
    TIME,
    Column,
)
from slurm_interleave.client.cli.rows import Row
from slurm_interleave.client.core.gains import part


def _average_wait(row: Row) -> float:
    return row.waited_s / max(row.turns, 1)


def _duty(row: Row) -> float | None:
    return part(row.gain.held, row.gain.occupied)


COLUMNS: tuple[Column[Row], ...] = (
    Column("JobID", "Slurm's number of the job", RIGHT_TEXT, lambda row: row.job_id),
    Column("JobName", "the job's name", TEXT, lambda row: row.job_name),
    Column("Group", "group whose members take turns", TEXT, lambda row: row.group),
    Column("Role", "trainer or sampler, where one job has separate device sets", TEXT, lambda row: row.role),
    Column("User", "who owns the job", TEXT, lambda row: row.user),
    Column("Account", "account that the job is charged to", TEXT, lambda row: row.account),
    Column("Partition", "partition of the job", TEXT, lambda row: row.partition),
    Column("Phase", "what the job named at its acquire", TEXT, lambda row: row.phase),
    Column("Backend", "how device state is saved and brought back", TEXT, lambda row: row.backend),
    Column("Nodes", "nodes of the job's devices", TEXT, lambda row: row.nodes),
    Column("Devices", "devices as node/index", LIST, lambda row: row.devices),
    Column("State", "WAITING, RUNNING, or how the turn ended", TEXT, lambda row: row.state),
    Column("Epoch", "number of the lease; rises with each grant", COUNT, lambda row: row.epoch),
    Column("Requested", "when the job asked for its devices", TIME, lambda row: row.requested),
    Column("Start", "when the devices were granted", TIME, lambda row: row.start),
    Column("End", "when the lease ended", TIME, lambda row: row.end),
    Column("Elapsed", "from Start to End, as [DD-]HH:MM:SS", DURATION, lambda row: row.elapsed_s),
    Column("Waited", "seconds from acquire to grant", SECONDS, lambda row: row.waited_s),
    Column("Held", "seconds from grant to the end of the lease", SECONDS, lambda row: row.held_s),
    Column("AvgWait", "mean of Waited over the turns, seconds", SECONDS, _average_wait),
    Column("MaxWait", "longest Waited of a turn, seconds", SECONDS, lambda row: row.max_wait_s),
    Column(
        "Expected",
        "seconds that it was told first to wait, mean",
        MAYBE_SECONDS,
        lambda row: part(row.expected_s, row.foretold),
    ),
    Column(
        "WaitError",
        "by which Waited missed Expected, mean seconds",
        MAYBE_SECONDS,
        lambda row: part(row.missed_s, row.foretold),
    ),
    Column("SwitchIn", "of Waited, seconds of the switch to this job", SECONDS, lambda row: row.switch_s),
    Column(
        "SnapshotTime", "of SwitchIn, seconds of the slowest snapshot", SECONDS, lambda row: row.snapshot_s
    ),
    Column("RestoreTime", "of SwitchIn, seconds of the slowest restore", SECONDS, lambda row: row.restore_s),
    Column("Overhead", "of SwitchIn, seconds that neither took", SECONDS, lambda row: row.overhead_s),
    Column("SwitchBytes", "bytes that the switch moved, both ways", BYTES, lambda row: row.switch_bytes),
    Column("Switches", "grants that needed a switch", COUNT, lambda row: row.switches),
    Column("Turns", "grants", COUNT, lambda row: row.turns),
    Column("DutyCycle", "of what it occupied, the part that it held", PERCENT, _duty),
    Column("DeviceHours", "devices times Held", HOURS, lambda row: row.gain.held),
    Column("SharedHours", "device-hours that its partners occupied", HOURS, lambda row: row.gain.shared),
    Column("SavedHours", "device-hours saved; below 0: lost by waiting", HOURS, lambda row: row.gain.saved),
    Column("Partner", "jobs with turns on its devices since its last", LIST, lambda row: row.partners),
    Column("Faults", "turns that ended as device state was lost", COUNT, lambda row: row.faults),
    Column("Comment", "why it ended, where that was a fault", TEXT, lambda row: row.comment),
)
DEFAULT_FORMAT = "JobID,Group,User,Phase,Start,Waited,Held,SwitchIn,Switches,State"
