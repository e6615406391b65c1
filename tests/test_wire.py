"""The generated stubs speak the v1alpha1 wire, byte for byte."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2 as agent_wire
from slurm_interleave.client.wire import timeslice_orchestrator_v1alpha1_pb2 as lock_wire
from tests.wire_contract import AGENT, LOCK, METHODS, WIRE, described


@pytest.mark.parametrize("wire", list(WIRE), ids=[LOCK, AGENT])
def test_the_messages_of_the_v1alpha1_wire_are_exactly_those_of_existing_clients(wire: Any) -> None:
    assert described(wire) == WIRE[wire]


@pytest.mark.parametrize(("wire", "package"), [(lock_wire, LOCK), (agent_wire, AGENT)], ids=[LOCK, AGENT])
def test_the_services_of_the_v1alpha1_wire_have_their_methods(wire: Any, package: str) -> None:
    name, methods = METHODS[wire]
    service = wire.DESCRIPTOR.services_by_name[name]

    assert service.full_name == f"{package}.{name}"
    assert [method.name for method in service.methods] == methods
    streams = [m.name for m in service.methods if m.client_streaming or m.server_streaming]
    assert streams == [name for name in methods if name == "WorkloadChannel"]
    for method in service.methods:
        if method.name not in streams:
            assert method.input_type.name == f"{method.name}Request"
            assert method.output_type.name == f"{method.name}Response"
