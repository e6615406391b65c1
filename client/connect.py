"""Channels to the orchestrator, who the caller is, and what a gRPC error means."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import grpc
from google.protobuf.message import Message

from slurm_interleave.client.core import munge
from slurm_interleave.client.core.addresses import check_address
from slurm_interleave.client.core.errors import ConfigError, InterleaveError, by_name

TOKEN_KEY = "interleave-token"
MUNGE_KEY = "interleave-munge"
NODE_KEY = "interleave-node"
ERROR_KEY = "interleave-error"
# Names an acquire, in all its tries. Its client says when it gives up: by a yield with the same name, which
# ends what that acquire was granted, nothing else. A stream that ends without was cut, and keeps its place.
CALL_KEY = "interleave-call"
_RETRY_S = (0.05, 0.1, 0.2, 0.5, 1.0)
# A peer that is gone without a word is noticed within 15 s.
CHANNEL_OPTIONS = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # Without it gRPC gives a ping a minute, whatever the line above says.
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    # How long one try may take, not the time between tries: a host with a lot to do says hello late.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.enable_http_proxy", 0),
    # The status of ten thousand members on many nodes is more than the 4 MiB that gRPC takes by itself.
    ("grpc.max_receive_message_length", 64 << 20),
)
Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ClientConfig:
    """Section [client]. Each field is the documentation of one key."""

    # Where the orchestrator listens: host:port, or unix:PATH.
    orchestrator: str = "127.0.0.1:50051"
    # How a caller outside a job proves who he is: "munge", or "none" where the orchestrator asks for nothing.
    auth: str = "munge"
    # Socket of munged; empty: munged's own default.
    munge_socket: str = ""
    # Socket of this node's agent, at which jobs register where there is no Slurm.
    agent_socket: Path = Path("/run/interleave/register.sock")

    def __post_init__(self) -> None:
        """Raise `ConfigError` for what is no address."""
        check_address(self.orchestrator, "[client] orchestrator")


@dataclass(frozen=True)
class Call:
    """One call, which a credential is made for: it is good for no other method, nor for another request."""

    method: str  # Service/Method
    request: Message | None = None
    node: str = ""  # of an agent, whose stream has no request yet

    def payload(self) -> bytes:
        """Return what its credential carries."""
        request = b"" if self.request is None else self.request.SerializeToString(deterministic=True)
        digest = hashlib.sha256(self.node.encode() + b"\0" + request).hexdigest()
        return f"interleave/1 {self.method} {digest}".encode()


def retry_s(attempt: int) -> float:
    """Return the seconds before a call is made again after so many failures, from 0."""
    return _RETRY_S[min(attempt, len(_RETRY_S) - 1)]


def token_metadata(token: str) -> Metadata:
    """Return the metadata of a job's own process."""
    return ((TOKEN_KEY, token),)


def credentials(call: Call, auth: str, munge_socket: str = "", token: str = "") -> Metadata:
    """Return the metadata that proves who the caller is: new for each call, since MUNGE refuses replays.

    Raises `ConfigError` for an unknown *auth*, `NotAuthenticated` if MUNGE does not answer.
    """
    node: Metadata = ((NODE_KEY, call.node),) if call.node else ()
    if token:
        return token_metadata(token)
    if auth == "munge":
        return ((MUNGE_KEY, munge.encode(call.payload(), munge_socket)), *node)
    if auth == "none":
        return node
    raise ConfigError(f"auth = {auth!r} is not known; known are 'munge' and 'none'")


def open_channel(address: str) -> grpc.Channel:
    """Return a channel to *address* that notices a dead peer; it connects at the first call."""
    return grpc.insecure_channel(address, options=CHANNEL_OPTIONS)


def open_aio_channel(address: str) -> grpc.aio.Channel:
    """Return the same for asyncio."""
    return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)


class Unreachable(InterleaveError):
    """The orchestrator does not answer."""

    status = "UNAVAILABLE"


def domain_error(error: grpc.RpcError, address: str) -> InterleaveError:
    """Return what *error* means: the class that the server raised, or one that names the address."""
    trailing = cast("Iterable[tuple[str, str]]", error.trailing_metadata() or ())
    for key, value in trailing:
        if key == ERROR_KEY:
            return by_name(value)(error.details())
    # A server that stops answers CANCELLED to what is under way; no caller of this function cancels.
    if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        return Unreachable(f"the orchestrator at {address} cannot be reached: {error.details()}")
    return InterleaveError(f"the orchestrator at {address} answered {error.code().name}: {error.details()}")
