"""A gRPC server that does nothing, in a process of its own: what a call costs on this machine."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc


class Empty(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # grpcio-health-checking has no types
    """Answers `Check` at once."""

    async def Check(self, request: Any, context: Any) -> Any:
        return health_pb2.HealthCheckResponse()


async def main() -> None:
    """Serve on a free port and print it."""
    server = grpc.aio.server(options=(("grpc.http2.max_ping_strikes", 0),))
    health_pb2_grpc.add_HealthServicer_to_server(Empty(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"event=ready port={port}", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
