"""The ranks of a job that use its devices together, on one node or several: rank 0 leads the others.

    ranks = JobRanks.from_env()
    for step in range(steps):
        with ranks.turn("train"):
            train()

They meet at the orchestrator, so nothing else has to be there: no process group, no MPI, no free port.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import grpc

from slurm_interleave.client.connect import Unreachable, domain_error, open_channel, retry_s, token_metadata
from slurm_interleave.client.core.errors import BadArgument, InterleaveError, NotAuthenticated
from slurm_interleave.client.interleaver import Interleaver
from slurm_interleave.client.member import Member, require_registration
from slurm_interleave.client.waiting import Waiting, say
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc

_SAY_S = 1.0
# By whom a rank is told which one it is: its number, how many there are, and what is new at each start.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE", ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", ()),
    ("PMI_RANK", "PMI_SIZE", ()),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ()),  # the last: mpirun's own daemons are tasks of srun
)
_STEP = ("SLURM_STEP_ID", "SLURM_RESTART_COUNT")


class JobRanks:
    """One rank. What is called is called by all ranks, in the same order. For one thread.

    Outside an interleaved job each call does nothing, the barrier too.
    """

    def __init__(self, interleaver: Interleaver, rank: int = 0, ranks: int = 1, place: str = "ranks") -> None:
        """*place* names those who meet, where a job has several such sets of ranks. Raises `BadArgument`."""
        if not 0 <= rank < ranks:
            raise BadArgument(f"rank {rank} of {ranks}: ranks count from 0")
        self.interleaver = interleaver
        self.rank, self.ranks, self.place = rank, ranks, place
        self._round = self._depth = 0
        self._before = ""
        self._channel: grpc.Channel | None = None

    @classmethod
    def from_env(
        cls, environ: Mapping[str, str] = os.environ, interleaver: Interleaver | None = None
    ) -> JobRanks:
        """Return this process among the ranks that torchrun, srun or mpirun has started.

        One whom nobody has told so is alone. Raises `BadArgument`.
        """
        rank, ranks, place = rank_of(environ)
        return cls(interleaver or Interleaver.from_env(environ), rank, ranks, place)

    @property
    def leads(self) -> bool:
        """Whether this one acquires and yields for all."""
        return self.rank == 0

    def barrier(self) -> None:
        """Return when all ranks have called it. Raises `InterleaveError` in all where one has failed."""
        if told := self.meet():
            raise InterleaveError(f"rank {self.rank}: {told}")

    @contextlib.contextmanager
    def turn(
        self, phase: str = "", timeout: float | None = None, groups: Sequence[str] | None = None
    ) -> Iterator[None]:
        """Hold the job's devices for the body of a `with`, or as a decorator for each call of a function.

        The body begins in all ranks once rank 0 holds, and rank 0 yields once all have ended it. Where one
        fails, or rank 0 is not granted the devices, all raise: the others `InterleaveError`. A turn within a
        turn changes nothing. Arguments as in `Interleaver.turn`.
        """
        self._depth += 1
        try:
            if self._depth > 1:
                yield
                return
            with contextlib.ExitStack() as held:
                self._together(lambda: held.enter_context(self._lead(phase, timeout, groups)))
                with self._telling():
                    yield
                self.barrier()
        finally:
            self._depth -= 1

    def meet(self, word: str = "", *, wait: bool = True) -> str:
        """Return the word of the lowest rank that has one when all have come: why it cannot go on.

        Without *wait*, say the own one and go.
        """
        member = self.interleaver.member
        if member is None or self.ranks == 1:
            return word
        require_registration(member)
        self._round += 1
        told = self._asked(member, word, wait=wait)
        self._before = told if wait else word
        return told

    def close(self) -> None:
        """Yield if a lease is held, and close the connections. Raises `StaleLease` where it was lost."""
        try:
            self.interleaver.close()
        finally:
            if self._channel is not None:
                self._channel.close()
            self._channel = None

    def _lead(
        self, phase: str, timeout: float | None, groups: Sequence[str] | None
    ) -> contextlib.AbstractContextManager[object]:
        if self.leads:
            return self.interleaver.turn(phase, timeout, groups)
        return contextlib.nullcontext()

    def _together(self, lead: Callable[[], object]) -> None:
        """Have rank 0 do what the others wait for."""
        with self._telling():
            lead()
        if told := self.meet():
            raise InterleaveError(f"rank {self.rank} has no devices: {told}")

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """Tell the others of an exception, without waiting for them: they may be waiting for this one."""
        try:
            yield
        except BaseException as error:
            with contextlib.suppress(InterleaveError):
                self.meet(f"rank {self.rank} failed: {error or type(error).__name__}", wait=False)
            raise

    def _asked(self, member: Member, word: str, *, wait: bool) -> str:
        request = pb.MeetRequest(
            job_id=member.job_id,
            place=self.place,
            round=self._round,
            rank=self.rank,
            ranks=self.ranks,
            word=word,
            before=self._before,
        )
        told, attempt = Waiting(member.group, say, time.monotonic), 0
        while True:
            try:
                who, limit = token_metadata(member.token), None if wait else _SAY_S
                return str(self._stub(member).Meet(request, timeout=limit, metadata=who).word)
            except grpc.RpcError as error:
                if not wait and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                    return word  # it was heard: the answer would come when all have come
                domain = _meaning(error, member.address)
                if not wait or not _may_pass(domain, told, member):
                    raise domain from None
            time.sleep(retry_s(attempt))
            attempt += 1

    def _stub(self, member: Member) -> rpc.RanksStub:
        if self._channel is None:
            self._channel = open_channel(member.address)
        return rpc.RanksStub(self._channel)


def _meaning(error: grpc.RpcError, address: str) -> InterleaveError:
    if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
        return domain_error(error, address)
    return InterleaveError(
        f"the ranks of the job cannot meet: the orchestrator at {address} is of an older release, which does "
        "not know of ranks; upgrade it first, then the agents, then what jobs use"
    )


def _may_pass(error: InterleaveError, told: Waiting, member: Member) -> bool:
    """Tell whether the call may be made again, and say what it waits for."""
    if isinstance(error, Unreachable):
        told.away(f"the orchestrator at {member.address} cannot be reached")
        return True
    return isinstance(error, NotAuthenticated) and told.unknown()


def rank_of(environ: Mapping[str, str]) -> tuple[int, int, str]:
    """Return which rank a process is, of how many, and a name for all of them. Raises `BadArgument`."""
    for rank, ranks, more in _LAUNCHERS:
        if rank in environ and ranks in environ:
            try:
                numbers = int(environ[rank]), int(environ[ranks])
            except ValueError:
                text = f"{rank}={environ[rank]!r}, {ranks}={environ[ranks]!r}: these are no numbers"
                raise BadArgument(text) from None
            names = [environ.get(name, "") for name in (*_STEP, *more)]
            return *numbers, ".".join(["ranks", *names])
    return 0, 1, "ranks"
