"""Spans of real processes: jobs, orchestrator and agent send them to a collector of the test's own."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as otlp_rpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from lab import LocalLab
from lab.processes import wait_until
from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.client.core.tracing import TracingConfig

pytestmark = pytest.mark.timeout(90)

# A program that traces itself: what it has set up is what the client uses.
JOB = """
import os, pathlib, sys, time
import numpy as np
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from slurm_interleave.client import Interleaver
from slurm_interleave.client.sim import SimDevice
provider = TracerProvider(resource=Resource.create({"service.name": "trainer"}))
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(sys.argv[1], insecure=True)))
trace.set_tracer_provider(provider)
turns, device = Interleaver.from_env(), None
for step in range(2):
    with trace.get_tracer("job").start_as_current_span("step"):
        with turns.turn("train"):
            device = device or SimDevice.open()
            weights = device.put(np.arange(1000.0))
    # The other has had a turn as well before either has its second: so state has to go, and to come back.
    here = pathlib.Path(sys.argv[2])
    (here / os.environ["INTERLEAVE_JOB_ID"]).touch()
    while len(list(here.iterdir())) < 2:
        time.sleep(0.02)
provider.shutdown()
"""


class Collector(otlp_rpc.TraceServiceServicer):
    """Keeps the spans that it is sent, each with the service that sent it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: list[tuple[str, Span]] = []

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: ARG002
        with self._lock:
            for group in request.resource_spans:
                [service] = [
                    a.value.string_value for a in group.resource.attributes if a.key == "service.name"
                ]
                self._spans += [(service, span) for scope in group.scope_spans for span in scope.spans]
        return otlp.ExportTraceServiceResponse()

    def spans(self, name: str, service: str) -> list[Span]:
        with self._lock:
            return [span for sender, span in self._spans if (span.name, sender) == (name, service)]


@pytest.fixture
def collector() -> Iterator[tuple[Collector, str]]:
    collecting, server = Collector(), grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    otlp_rpc.add_TraceServiceServicer_to_server(collecting, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield collecting, f"http://127.0.0.1:{port}"
    server.stop(None).wait()


def attributes(span: Span) -> dict[str, Any]:
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}


MOVES = {"interleave.snapshot", "interleave.restore"}


def moves_in(collecting: Collector) -> list[Span]:
    """What agents have sent of the moves that a switch ordered."""
    found = [span for name in sorted(MOVES) for span in collecting.spans(name, "interleave-agent")]
    return [span for span in found if span.parent_span_id]


def test_a_switch_is_one_trace_from_the_job_to_the_agents(
    collector: tuple[Collector, str], tmp_path: Path
) -> None:
    collecting, endpoint = collector
    with LocalLab.start(config={"tracing": {"endpoint": endpoint}}) as lab:
        jobs = [
            lab.submit([sys.executable, "-c", JOB, endpoint, str(tmp_path)], group="demo") for _ in range(2)
        ]
        assert [lab.wait(job) for job in jobs] == [0, 0], [lab.output(job) for job in jobs]
        assert wait_until(lambda: {move.name for move in moves_in(collecting)} == MOVES, 30)
    # Daemons send what they still have when they stop.

    steps = {span.span_id: span for span in collecting.spans("step", "trainer")}
    acquires = {span.span_id: span for span in collecting.spans("interleave.acquire", "trainer")}
    queues = {span.span_id: span for span in collecting.spans("interleave.queue", "interleaved")}
    switches = {span.span_id: span for span in collecting.spans("interleave.switch", "interleaved")}
    assert len(acquires) == 4
    assert all(span.parent_span_id in steps for span in acquires.values())
    assert all(span.parent_span_id in acquires for span in queues.values())
    assert {attributes(span)["interleave.job"] for span in queues.values()} == set(jobs)
    assert switches
    assert all(span.parent_span_id in queues for span in switches.values())
    for move in moves_in(collecting):
        switch = switches[move.parent_span_id]
        assert move.trace_id == switch.trace_id
        assert switch.start_time_unix_nano <= move.start_time_unix_nano
        assert move.end_time_unix_nano <= switch.end_time_unix_nano
        assert attributes(move)["interleave.backend"] == "sim"
        assert move.status.code != Status.STATUS_CODE_ERROR
    assert {attributes(span)["interleave.phase"] for span in acquires.values()} == {"train"}
    assert any(attributes(span)["interleave.bytes"] > 0 for span in switches.values())


def test_a_collector_that_is_away_delays_nobody() -> None:
    job = "from slurm_interleave.client import Interleaver\nwith Interleaver.from_env().turn(): print('took')"
    with LocalLab.start(config={"tracing": {"endpoint": "http://127.0.0.1:1"}}) as lab:
        done = lab.submit([sys.executable, "-c", job], group="demo")
        assert lab.wait(done) == 0
        assert wait_until(lambda: "took" in lab.output(done), 60)


@pytest.mark.parametrize("module", ["client", "orchestrator.daemon", "node_agent.daemon"])
def test_without_tracing_nothing_of_opentelemetry_is_loaded(module: str) -> None:
    code = f"import sys; from slurm_interleave.{module} import *; sys.exit('opentelemetry' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("endpoint", ["collector:4317", "http://collector", "ftp://collector:1"])
def test_an_endpoint_that_is_none_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigError, match=r"\[tracing\] endpoint = .*http://collector:4317"):
        TracingConfig(endpoint)
