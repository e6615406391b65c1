"""The orchestrator's spans: acquires as they are served, and the switches that they wait for."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry.trace import Span, Status, StatusCode, Tracer

from slurm_interleave.client.core import tracing
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.orchestrator.arbiter import Arbiter
from slurm_interleave.orchestrator.core import commands as cmd
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.switches import Switch
from slurm_interleave.orchestrator.services.interleave import InterleaveService
from slurm_interleave.sql.rows import Key

_ACQUIRES_MAX = 10_000


@dataclass
class _Traced:
    switch: Switch
    span: Span


class Traces:
    """Makes spans of what the arbiter decides; lives in its event loop."""

    def __init__(self, arbiter: Arbiter, tracer: Tracer) -> None:
        """Observe *arbiter* from now on."""
        self._arbiter = arbiter
        self._tracer = tracer
        self._acquires: OrderedDict[Key, str] = OrderedDict()  # the last span of each member, as traceparent
        self._switches: dict[Key, _Traced] = {}
        arbiter.observers.append(self.observe)

    @contextlib.contextmanager
    def acquiring(self, request: pb.AcquireRequest, context: Any) -> Iterator[Span]:
        """Make a span of a call, below that of its caller."""
        parent = dict(context.invocation_metadata()).get(tracing.KEY, "")
        about = {"job": request.job_id, "group": request.group, "phase": request.phase}
        # Not the current span: the call is a generator, which may be closed elsewhere.
        span = self._tracer.start_span(
            "interleave.queue", tracing.context_of(parent), attributes=tracing.attributes_of(about)
        )
        for group in (request.group, *request.also):
            self._acquires[Key(request.job_id, group)] = tracing.parent_of(span)
            self._acquires.move_to_end(Key(request.job_id, group))
        while len(self._acquires) > _ACQUIRES_MAX:
            self._acquires.popitem(last=False)
        try:
            yield span
        finally:
            span.end()

    def parent(self, operation: cmd.Operate) -> str:
        """Return the traceparent of the switch that *operation* is part of; empty where it is of none."""
        switch = self._arbiter.core.switches.under_way(operation.operation)
        if switch is None:
            return ""
        traced = self._switches.get(switch.into)
        if traced is None or traced.switch is not switch:
            traced = self._switches[switch.into] = _Traced(switch, self._begin(switch))
        return tracing.parent_of(traced.span)

    def observe(self, _event: ev.Event, _commands: Sequence[cmd.Command]) -> None:
        """End the spans of switches that are over."""
        active = self._arbiter.core.switches.active
        for key, traced in list(self._switches.items()):
            if active.get(key) is not traced.switch:
                del self._switches[key]
                self._end(traced)

    def _begin(self, switch: Switch) -> Span:
        key = switch.into
        return self._tracer.start_span(
            "interleave.switch",
            tracing.context_of(self._acquires.get(key, "")),
            start_time=tracing.nanoseconds(switch.cost.began),
            attributes=tracing.attributes_of({"job": key.job_id, "group": key.group}),
        )

    def _end(self, traced: _Traced) -> None:
        cost, span = traced.switch.cost, traced.span
        moved = {"snapshot_s": cost.snapshot_s, "restore_s": cost.restore_s, "bytes": cost.bytes}
        span.set_attributes(tracing.attributes_of(moved))
        if traced.switch.culprits:
            reasons = "; ".join(f"job {key.job_id}: {why}" for key, why in traced.switch.culprits.items())
            span.set_status(Status(StatusCode.ERROR, reasons))
        span.end(tracing.nanoseconds(cost.ended or self._arbiter.now()))


class TracedInterleave(InterleaveService):
    """The service, with a span for each acquire."""

    def __init__(self, traces: Traces, *parts: Any) -> None:
        """Serve as the service does that has *parts*."""
        super().__init__(*parts)
        self._traces = traces

    async def Acquire(self, request: pb.AcquireRequest, context: Any) -> AsyncIterator[pb.AcquireUpdate]:
        """Serve it within a span."""
        with self._traces.acquiring(request, context) as span:
            async for update in super().Acquire(request, context):
                if update.HasField("granted"):
                    span.set_attribute("interleave.epoch", update.granted.epoch)
                yield update

    async def AcquireSoon(self, request: pb.AcquireRequest, context: Any) -> pb.AcquireUpdate:
        """Serve it within a span."""
        with self._traces.acquiring(request, context) as span:
            update = await super().AcquireSoon(request, context)
            if update.HasField("granted"):
                span.set_attribute("interleave.epoch", update.granted.epoch)
            return update
