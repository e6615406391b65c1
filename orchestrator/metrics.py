"""Counts what is decided and what agents report, for Prometheus; looks at the rest when it asks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Gauge

from slurm_interleave.client.core.states import Context
from slurm_interleave.orchestrator.arbiter import Arbiter
from slurm_interleave.orchestrator.core import commands as cmd
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.book import Device
from slurm_interleave.orchestrator.meters import GroupLabels, Meters
from slurm_interleave.sql import rows

# What a log line of the core says went wrong, by its event.
_FAULTS = frozenset({"member.faulted", "switch.failed", "clear.failed", "lease.overdue"})
_VERBS = {Context.SAVED: cmd.Verb.SNAPSHOT, Context.RESIDENT: cmd.Verb.RESTORE}


class Metrics:
    """The metrics of one orchestrator; lives in its event loop."""

    def __init__(self, arbiter: Arbiter, groups_max: int) -> None:
        """Observe *arbiter* from now on."""
        self._meters = Meters()
        self._arbiter = arbiter
        self._state = arbiter.core.state
        self._labels = GroupLabels(groups_max, self._meters.forget)
        # Until when the time of each lease is counted.
        self._counted = dict.fromkeys(self._state.leases, arbiter.now())
        self._shown = set[str]()
        self._meters.trespasses.labels("")
        self._meters.info.labels(version("slurm-interleave")).set(1)
        arbiter.observers.append(self.observe)

    @property
    def registry(self) -> CollectorRegistry:
        """What is to be served."""
        return self._meters.registry

    def observe(self, event: ev.Event, commands: Sequence[cmd.Command]) -> None:
        """Count what *event* has led to."""
        for command in commands:
            match command:
                case cmd.Put(row=rows.Lease() as lease, new=True):
                    self._granted(lease)
                case cmd.Put(row=rows.Slice() as ended):
                    self._ended(ended)
                    if isinstance(event, ev.Yield) and cmd.Yielded(0) in commands:
                        self._meters.ts_deferred.labels(self._labels.of(ended.group)).inc()
                case cmd.Note():
                    self._noted(command)
        if isinstance(event, ev.OperationDone) and event.ok:
            self._moved(event, commands)

    def look(self) -> None:
        """Bring up to date what no event tells."""
        state, meters = self._state, self._meters
        self._labels.make_room(state.groups)
        depth, faulted = defaultdict[str, int](int), defaultdict[str, int](int)
        devices = defaultdict[str, set[Device]](set)
        for group, members in state.groups.items():
            label = self._labels.of(group)
            depth[label] += self._arbiter.core.standings.view(group).waiting
            faulted[label] += sum(bool(state.members[key].fault) for key in members)
            for key in members:
                devices[label].update(state.devices(key))
        sizes = {label: len(theirs) for label, theirs in devices.items()}
        self._show(
            {
                meters.queue_depth: depth,
                meters.ts_depth: depth,
                meters.faulted: faulted,
                meters.devices: sizes,
            }
        )
        for label in sizes:
            self._begin(label)
        meters.agents.set(len(state.nodes_up))
        now = self._arbiter.now()
        for key in list(self._counted):
            if key in state.leases:
                self._count(key, now, len(state.devices(key)))

    def _begin(self, label: str) -> None:
        """Let counts that alerts are about begin with 0: Prometheus sees no step from nowhere to 1."""
        meters = self._meters
        for counter in (meters.busy, meters.switching, meters.overhead, meters.trespasses):
            counter.labels(label)
        for kind in _FAULTS:
            meters.faults.labels(label, kind)

    def _show(self, gauges: Mapping[Gauge, Mapping[str, int]]) -> None:
        """Let *gauges* have these values, and none for groups that are over."""
        for gauge, values in gauges.items():
            for label in self._shown.difference(values):
                gauge.remove(label)
            for label, value in values.items():
                gauge.labels(label).set(value)
        self._shown = set().union(*gauges.values())

    def _granted(self, lease: rows.Lease) -> None:
        meters, label, key = self._meters, self._labels.of(lease.group), rows.Key(lease.job_id, lease.group)
        self._counted[key] = lease.granted
        meters.grants.labels(label, "yes" if lease.switched else "no").inc()
        meters.wait.labels(label).observe(lease.granted - lease.requested)
        meters.ts_wait.labels(label).observe(lease.granted - lease.requested)
        missed_s = self._arbiter.expectations.missed_s(lease)
        if missed_s is not None:
            meters.wait_error.labels(label, "later" if missed_s > 0 else "sooner").observe(abs(missed_s))
        if not lease.switched:
            return
        meters.switch.labels(label).observe(lease.switch_s)
        meters.snapshot.labels(label).observe(lease.snapshot_s)
        if lease.restored:
            meters.restore.labels(label).observe(lease.restore_s)
        meters.switch_bytes.labels(label).inc(lease.switch_bytes)
        devices = len(self._state.devices(key))
        ours_s = max(0.0, lease.switch_s - lease.snapshot_s - lease.restore_s)
        meters.switching.labels(label).inc(lease.switch_s * devices)
        meters.overhead.labels(label).inc(ours_s * devices)

    def _ended(self, ended: rows.Slice) -> None:
        key, label = rows.Key(ended.job_id, ended.group), self._labels.of(ended.group)
        self._count(key, ended.ended, len(ended.devices))
        self._counted.pop(key, None)
        self._meters.hold.labels(label).observe(ended.ended - ended.granted)
        self._meters.ends.labels(label, ended.state.value).inc()

    def _count(self, key: rows.Key, until: float, devices: int) -> None:
        """Count the time of a lease up to *until*: at its end, and while it lasts, so that it shows then."""
        passed = until - self._counted.get(key, until)
        if passed > 0:
            self._meters.busy.labels(self._labels.of(key.group)).inc(passed * devices)
            self._counted[key] = until

    def _noted(self, note: cmd.Note) -> None:
        label = self._labels.of(note.key.group) if note.key.group else ""
        if note.event == "trespass.seen":
            self._meters.trespasses.labels(label).inc()
        elif note.event in _FAULTS:
            self._meters.faults.labels(label, note.event).inc()

    def _moved(self, done: ev.OperationDone, commands: Sequence[cmd.Command]) -> None:
        """Count an operation whose result has changed where a member's state is."""
        verb = _VERBS.get(done.context)
        for command in commands:
            match command:
                case cmd.Put(row=rows.Part(job_id=done.job_id, node=done.node) as part) if verb is not None:
                    label = self._labels.of(part.group)
                    self._meters.ts_operation.labels(label, verb.value).observe(done.seconds)
                    return
