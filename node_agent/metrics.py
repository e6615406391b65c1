"""Counts what was moved, for Prometheus, and looks at saved state when it asks. Meaning: docs/metrics.md."""

from __future__ import annotations

import asyncio
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from slurm_interleave.client.core.metrics import DURATIONS
from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent.contexts import Outcome, Verb
from slurm_interleave.node_agent.operations import Operations
from slurm_interleave.node_agent.state import State

_PREFIX = "interleave_agent_"
_OUTCOMES = ("ok", "failed", "faulted")
_KEPT = frozenset({Context.SAVING, Context.SAVED, Context.RESTORING})


class Metrics:
    """The metrics of one agent; lives in its event loop."""

    def __init__(self, state: State, operations: Operations, connected: asyncio.Event) -> None:
        """Observe *operations* from now on; *connected*: the orchestrator is there."""
        self.registry = CollectorRegistry()
        self._state = state
        self._connected = connected
        self._operations = Histogram(
            f"{_PREFIX}operation_seconds",
            "Snapshots, restores and discards of a job's state",
            ("operation", "backend", "outcome"),
            registry=self.registry,
            buckets=DURATIONS,
        )
        self._bytes = Counter(
            f"{_PREFIX}operation_bytes",
            "Bytes that these moved",
            ("operation", "backend"),
            registry=self.registry,
        )
        self._saved = self._gauge("saved_bytes", "Saved state on this node", "place")
        self._contexts = self._gauge("contexts", "Jobs by where their state is", "state")
        self._link = self._gauge("orchestrator_connected", "1 while the orchestrator is there")
        self._gauge("info", "1, with the release", "version").labels(version("slurm-interleave")).set(1)
        operations.observe = self.observe

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(_PREFIX + name, text, labels, registry=self.registry)

    def observe(self, verb: Verb, mover: str, outcome: Outcome, seconds: float) -> None:
        """Count an operation that has ended."""
        for each in _OUTCOMES:  # Prometheus sees no step from nowhere to 1
            self._operations.labels(verb.value, mover, each)
        ended = "ok" if outcome.ok else "faulted" if outcome.context is Context.FAULTED else "failed"
        self._operations.labels(verb.value, mover, ended).observe(seconds)
        self._bytes.labels(verb.value, mover).inc(outcome.moved)

    def look(self) -> None:
        """Bring up to date what no operation tells."""
        states, places = dict.fromkeys(Context, 0), {"memory": 0, "disk": 0}
        for job in self._state.jobs.values():
            context = job.context
            states[context.state] += 1
            places["memory"] += sum(job.copies.values())
            if context.state in _KEPT:
                places["memory"] += context.memory_bytes
                places["disk"] += context.bytes - context.memory_bytes
        for state, count in states.items():
            self._contexts.labels(state.value).set(count)
        for place, size in places.items():
            self._saved.labels(place).set(size)
        self._link.set(self._connected.is_set())
