"""Spans of OpenTelemetry: where a turn's time went, from the job through the orchestrator to the agents.

Nothing of OpenTelemetry is loaded unless a daemon's configuration asks for it, or the program that the client
is part of has loaded it for itself. Contexts travel as `traceparent` of W3C (https://www.w3.org/TR/trace-context/).
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from slurm_interleave.client.core.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

KEY = "traceparent"
_NAME = "slurm_interleave"
_NS = 1_000_000_000


@dataclass(frozen=True)
class TracingConfig:
    """Section [tracing] of interleave.toml, for both daemons. Each field is the documentation of one key."""

    # Where spans go, by OTLP over gRPC: http://collector:4317, or https:// with TLS; empty: there are none.
    endpoint: str = ""

    def __post_init__(self) -> None:
        """Refuse what is no address."""
        parts = urlsplit(self.endpoint)
        if self.endpoint and (parts.scheme not in ("http", "https") or not parts.hostname or not parts.port):
            raise ConfigError(
                f"[tracing] endpoint = {self.endpoint!r}: write the address at which a collector takes "
                "OTLP over gRPC, as http://collector:4317"
            )


@contextlib.contextmanager
def exporting(config: TracingConfig, service: str) -> Iterator[None]:
    """Send this process's spans, as those of *service*, where *config* says, if it says so.

    Raises `ConfigError` where OpenTelemetry is not installed.
    """
    if not config.endpoint:
        yield
        return
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"[tracing] endpoint is set, but {error.name} is not installed; "
            "run: pip install 'slurm-interleave[tracing]'"
        ) from None
    provider = TracerProvider(resource=Resource.create({"service.name": service}), shutdown_on_exit=False)
    exporter = OTLPSpanExporter(config.endpoint, insecure=config.endpoint.startswith("http:"))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        provider.shutdown()


def tracer() -> Tracer | None:
    """Return what makes spans; None where this process has nothing of OpenTelemetry loaded."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    from opentelemetry import trace

    return trace.get_tracer(_NAME)


@contextlib.contextmanager
def span(name: str, parent: str = "", **attributes: str | int | float) -> Iterator[None]:
    """Make what happens in the block a span below *parent*, or below the span that this is in."""
    making = tracer()
    if making is None:
        yield
        return
    with making.start_as_current_span(name, context_of(parent), attributes=attributes_of(attributes)):
        yield


@contextlib.contextmanager
def within(parent: str) -> Iterator[None]:
    """Let spans of the block be below *parent*, a traceparent, if it is one."""
    if not parent or tracer() is None:
        yield
        return
    from opentelemetry import context

    token = context.attach(context_of(parent) or context.get_current())
    try:
        yield
    finally:
        context.detach(token)


def told(error: str, **attributes: str | int | float) -> None:
    """Note in the present span how it went: well, where *error* is empty."""
    if tracer() is None:
        return
    from opentelemetry.trace import Status, StatusCode, get_current_span

    get_current_span().set_attributes(attributes_of(attributes))
    if error:
        get_current_span().set_status(Status(StatusCode.ERROR, error))


def attributes_of(values: Mapping[str, str | int | float]) -> dict[str, str | int | float]:
    """Return *values* with the names that our attributes have."""
    return {f"interleave.{key}": value for key, value in values.items()}


def context_of(parent: str) -> Context | None:
    """Return the context that *parent*, a traceparent, names; None where it names none."""
    if not parent:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({KEY: parent})


def parent_of(span: Span | None = None) -> str:
    """Return the traceparent of *span*, or of the one that this is in; empty where there is none."""
    if tracer() is None:
        return ""
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    within = trace.set_span_in_context(span) if span is not None else None
    TraceContextTextMapPropagator().inject(carrier, within)
    return carrier.get(KEY, "")


def metadata() -> tuple[tuple[str, str], ...]:
    """Return the metadata of a call that is made within the present span."""
    parent = parent_of()
    return ((KEY, parent),) if parent else ()


def nanoseconds(at: float) -> int:
    """Return *at*, seconds since the epoch, as spans have it."""
    return round(at * _NS)
