"""The orchestrator's metrics by name. Their meaning, for those who read them: docs/metrics.md."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from slurm_interleave.client.core.metrics import DURATIONS

OTHER = "other"
_Kind = TypeVar("_Kind", bound=MetricWrapperBase)
# Bounds of llm-d-rl-time-slicing, for the metrics that have its names, so that its dashboards fit.
_REFERENCE_DURATIONS = (0.001, 0.01, 0.1, 1, 10, 60, 300, 600)


class Meters:
    """All metrics of one orchestrator, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._of_groups: list[tuple[MetricWrapperBase, str]] = []
        self.queue_depth = self._gauge("queue_depth", "Jobs that wait for a turn")
        self.wait = self._histogram("wait_seconds", "From acquire to grant")
        self.wait_error = self._histogram(
            "wait_error_seconds", "How far the expected wait was from the one that came", "side"
        )
        self.hold = self._histogram("hold_seconds", "From grant to the lease's end")
        self.switch = self._histogram("switch_seconds", "Wall time of a switch before a grant")
        self.snapshot = self._histogram("snapshot_seconds", "Slowest node's snapshot in a switch")
        self.restore = self._histogram("restore_seconds", "Slowest node's restore in a switch")
        self.switch_bytes = self._counter("switch_bytes", "Bytes moved by switches")
        self.grants = self._counter("grants", "Leases begun", "switched")
        self.ends = self._counter("leases_ended", "Leases ended", "state")
        self.busy = self._counter("device_busy_seconds", "Time that devices were held, times devices")
        self.switching = self._counter(
            "device_switch_seconds", "Time that devices were switched, times devices"
        )
        self.overhead = self._counter(
            "device_overhead_seconds", "Of that, what was neither snapshot nor restore: ours alone"
        )
        self.devices = self._gauge("devices", "Devices that members of the group may use")
        self.faulted = self._gauge("faulted_members", "Members that get no turn until they are cleared")
        self.faults = self._counter("faults", "What went wrong", "kind")
        self.trespasses = self._counter("trespasses", "Processes seen on devices that they do not hold")
        self.agents = Gauge("interleave_agents_connected", "Connected agents", registry=self.registry)
        self.info = Gauge("interleave_info", "1, with the release", ["version"], registry=self.registry)
        self._reference()

    def _reference(self) -> None:
        """Make those of llm-d-rl-time-slicing, without its labels of jobs and nodes, which have no bound."""
        prefix, label = "timeslice_orchestrator_", "group_id"
        self.ts_depth = self._keep(Gauge, f"{prefix}queue_depth", "As interleave_queue_depth", label)
        self.ts_wait = self._keep(
            Histogram,
            f"{prefix}acquire_wait_duration_seconds",
            "As interleave_wait_seconds",
            label,
            buckets=_REFERENCE_DURATIONS,
        )
        self.ts_operation = self._keep(
            Histogram,
            f"{prefix}agent_operation_duration_seconds",
            "Snapshots and restores that went well, as agents report them",
            label,
            "operation",
            buckets=_REFERENCE_DURATIONS,
        )
        self.ts_deferred = self._keep(
            Counter, f"{prefix}deferred_snapshots", "Yields with nobody waiting: no snapshot", label
        )

    def forget(self, group: str) -> None:
        """Remove the series of a group."""
        for metric, label in self._of_groups:
            metric.remove_by_labels({label: group})

    def _gauge(self, name: str, text: str) -> Gauge:
        return self._keep(Gauge, f"interleave_{name}", text, "group")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return self._keep(Counter, f"interleave_{name}", text, "group", *labels)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return self._keep(Histogram, f"interleave_{name}", text, "group", *labels, buckets=DURATIONS)

    def _keep(self, kind: Callable[..., _Kind], name: str, text: str, *labels: str, **more: object) -> _Kind:
        metric = kind(name, text, labels, registry=self.registry, **more)
        self._of_groups.append((metric, labels[0]))
        return metric


class GroupLabels:
    """Labels for groups: at most *maximum* names, the rest are "other".

    A group that is over keeps its name until others need the place; *forget* is told then.
    """

    def __init__(self, maximum: int, forget: Callable[[str], None]) -> None:
        self._maximum = maximum
        self._forget = forget
        self._names: dict[str, None] = {}

    def of(self, group: str) -> str:
        """Return the label of *group*."""
        if group not in self._names:
            if len(self._names) >= self._maximum:
                return OTHER
            self._names[group] = None
        return group

    def make_room(self, living: Container[str]) -> None:
        """If no name is left, take those of groups that are over; *living* are those with members."""
        if len(self._names) < self._maximum:
            return
        for over in [name for name in self._names if name not in living]:
            del self._names[over]
            self._forget(over)
