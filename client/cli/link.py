"""What the commands ask the orchestrator; the one place where a gRPC error becomes a text for the user."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import grpc
from google.protobuf.message import Message

from slurm_interleave.client.connect import (
    Call,
    ClientConfig,
    Metadata,
    Unreachable,
    credentials,
    domain_error,
    open_channel,
)
from slurm_interleave.client.core.config import config_path, load_section
from slurm_interleave.client.core.errors import NotInTime, WrongState
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc

TIMEOUT_S = 60.0


class Orchestrator:
    """The orchestrator as the command line sees it: what the commands ask."""

    def __init__(self, config: ClientConfig, channel: grpc.Channel, environ: Mapping[str, str]) -> None:
        self._config = config
        self._stub: Any = rpc.InterleaveStub(channel)
        self._pages: Any = rpc.PagesStub(channel)
        self._pairing: Any = rpc.PairingStub(channel)
        self._token = environ.get("INTERLEAVE_TOKEN", "")

    def list_slices(self, request: pb.ListSlicesRequest) -> Iterator[pb.Slice]:
        """Yield the slices that the caller may see, oldest first. Raises `NotInTime`."""
        for page in self._slice_pages(request):
            yield from page.slices

    def list_sums(self, request: pb.ListSlicesRequest) -> Iterator[pb.Slice | pb.DaySum]:
        """Yield the same as sums by member and day, and slices that last or wait.

        An orchestrator of an earlier release sends slices alone. Raises `NotInTime`.
        """
        request.summed = True
        for page in self._slice_pages(request):
            yield from page.days
            yield from page.slices

    def status(self, group: str = "") -> pb.StatusReply:
        """Return the present state of *group*, or of all groups that the caller may see."""
        request = pb.StatusRequest(group=group)
        who = self._who("GetStatus", request)
        reply: pb.StatusReply = self._stub.GetStatus(request, metadata=who, timeout=TIMEOUT_S)
        return reply

    def watch(self, group: str = "") -> Any:
        """Return a stream of the changes of *group*, or of all groups: first all of it."""
        request = pb.StatusRequest(group=group)
        return self._stub.Watch(request, metadata=self._who("Watch", request))

    def revoke(self, job_id: str, group: str) -> None:
        """Take the devices of *group* from a job. Raises `NotTheHolder`, `Denied`."""
        request = pb.RevokeRequest(job_id=job_id, group=group)
        self._stub.Revoke(request, metadata=self._who("Revoke", request), timeout=TIMEOUT_S)

    def clear(self, job_id: str, group: str, *, keep: bool = False) -> Sequence[pb.ContextStatus]:
        """End the fault of a job; return what was discarded. Raises `WrongState`, `Busy`, `Denied`."""
        request = pb.ClearRequest(job_id=job_id, group=group, keep=keep)
        reply: pb.ClearReply = self._stub.Clear(
            request, metadata=self._who("Clear", request), timeout=TIMEOUT_S
        )
        return reply.discarded

    def cancel_operation(self, job_id: str, group: str) -> Sequence[pb.ContextStatus]:
        """Have what is done to a job's device state stopped; return where it is then. Raises `NotInTime`."""
        request = pb.CancelOperationRequest(job_id=job_id, group=group)
        reply: pb.CancelOperationReply = self._stub.CancelOperation(
            request, metadata=self._who("CancelOperation", request), timeout=TIMEOUT_S
        )
        return reply.contexts

    def drain(self, node: str) -> Iterator[pb.DrainUpdate]:
        """Have the jobs of a node saved and requeued; yield how it went with each. Raises `Denied`."""
        request = pb.DrainRequest(node=node)
        yield from self._stub.Drain(request, metadata=self._who("Drain", request))

    def open_page(self) -> pb.OpenPageReply:
        """Return a link to the orchestrator's web page. Raises `WrongState` where there is none."""
        request = pb.OpenPageRequest()
        who = self._who("OpenPage", request, "Pages")
        with _served("interleaved serves no web page here; an administrator can set [web] listen"):
            reply: pb.OpenPageReply = self._pages.OpenPage(request, metadata=who, timeout=TIMEOUT_S)
        return reply

    def explain_pairing(self, job_id: str = "") -> pb.ExplainReply:
        """Return why placement puts *job_id*, or all, together with others or not. Raises `BadArgument`."""
        request = pb.ExplainRequest(job_id=job_id)
        who = self._who("Explain", request, "Pairing")
        with _served("interleaved is of an earlier release, which explains no pairing; upgrade it"):
            reply: pb.ExplainReply = self._pairing.Explain(request, metadata=who, timeout=TIMEOUT_S)
        return reply

    def _slice_pages(self, request: pb.ListSlicesRequest) -> Iterator[pb.SlicePage]:
        """Yield pages as long as they come: a long report may take minutes, and its reader even longer."""
        call = self._stub.ListSlices(request, metadata=self._who("ListSlices", request))
        try:
            while (page := self._next_page(call)) is not None:
                yield page
        finally:
            call.cancel()

    def _next_page(self, call: Any) -> pb.SlicePage | None:
        silent = threading.Event()

        def give_up() -> None:
            silent.set()
            call.cancel()

        timer = threading.Timer(TIMEOUT_S, give_up)
        timer.daemon = True
        timer.start()
        try:
            page: pb.SlicePage | None = next(call, None)
        except grpc.RpcError:
            if not silent.is_set():
                raise
            raise NotInTime(
                f"the orchestrator at {self._config.orchestrator} sent nothing for {TIMEOUT_S:g} s; "
                "if it is busy, try again later, or ask for less: a later -S, or -u, -j, -G"
            ) from None
        finally:
            timer.cancel()
        return page

    def _who(self, method: str, request: Message, service: str = "Interleave") -> Metadata:
        call = Call(f"{service}/{method}", request)
        return credentials(call, self._config.auth, self._config.munge_socket, self._token)


@contextmanager
def _served(why_not: str) -> Iterator[None]:
    """Raise `WrongState` with *why_not* where the orchestrator does not know the call."""
    try:
        yield
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
            raise
        raise WrongState(why_not) from None


@contextmanager
def orchestrator(
    config_file: str | None, address: str | None, environ: Mapping[str, str] = os.environ
) -> Iterator[Orchestrator]:
    """Connect to the orchestrator that the flags, the environment or the configuration name.

    Inside the `with`, a gRPC error becomes the `InterleaveError` that it stands for.
    """
    path = config_path(config_file, environ)
    config = load_section(ClientConfig, "client", path, {"orchestrator": address}, environ)
    with open_channel(config.orchestrator) as channel:
        try:
            yield Orchestrator(config, channel, environ)
        except grpc.RpcError as error:
            raise _explained(error, config.orchestrator) from None


def _explained(error: grpc.RpcError, address: str) -> Exception:
    domain = domain_error(error, address)
    if isinstance(domain, Unreachable):
        why = str(error.details()).rsplit(": ", 1)[-1]
        return Unreachable(
            f"the orchestrator at {address} cannot be reached ({why}); "
            "is interleaved running there? Another address: --address, or orchestrator in [client]"
        )
    return domain


def groups_where(job_id: str, reply: pb.StatusReply, holds: Callable[[pb.MemberStatus], object]) -> list[str]:
    """Return the groups in which *holds* is true of the job."""
    return [
        group.name
        for group in reply.groups
        for member in group.members
        if member.job_id == job_id and holds(member)
    ]
