"""What the scripts of jobs do: turns in one group or in two, and what their authors thought of."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
from sqlalchemy.util import await_only

from slurm_interleave.client.core.errors import Busy, Deadlock, InterleaveError, JobFaulted, StaleLease
from slurm_interleave.client.session import Lease, Member, Session
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from tests.simulation.runs import Run

if TYPE_CHECKING:
    from tests.simulation.world import World

_CLEARS = 20  # times that a user tries


def script_of(world: World, run: Run) -> Script:
    """Return the script of a job."""
    if len(set(run.groups.values())) == 1:
        return Script(world, run)
    return AtOnce(world, run) if run.at_once else OneByOne(world, run)


class Script:
    """A job of one group: turns, with or without deadlines."""

    def __init__(self, world: World, run: Run) -> None:
        self._world, self._run = world, run
        self._groups = list(dict.fromkeys(run.groups.values()))
        self._sessions = {group: self._session(group) for group in self._groups}
        self._leases: dict[str, int] = {}  # epochs by group
        self._attending = False

    def _session(self, group: str, kind: type[Session] = Session, *more: Any) -> Session:
        run, values = self._run, self._run.environment
        member = Member(
            values["INTERLEAVE_JOB_ID"],
            group,
            values["INTERLEAVE_NODE"],
            values["INTERLEAVE_ORCHESTRATOR"],
            values["INTERLEAVE_TOKEN"],
        )
        return kind(member, *more, tell=lambda text: self._world.happens("says", run.job, text))

    def main(self) -> None:
        """Take turns until it has had them all, or it cannot go on."""
        try:
            while self._run.turns > 0:
                self._attend()
                try:
                    self._turn()
                except JobFaulted as error:
                    self._clear(error)
        except InterleaveError as error:
            self._world.gave_up(self._run, error)
        for session in self._sessions.values():
            session.close()

    def _attend(self) -> None:
        """Tell the node's agent that this process takes turns, as the client does at the job's socket."""
        node = self._world.nodes[min(self._run.places)]
        job = node.known.jobs.get(self._run.job) if node.known is not None else None
        if self._attending or node.agent is None or node.served is None or job is None:
            return
        register, pid = node.served.register, self._run.pid

        async def tell() -> None:
            register.attend(job, pid)

        node.agent.spawn(tell(), "attend")
        self._attending = True

    def _turn(self) -> None:
        """Acquire, work, yield."""
        try:
            self._acquire(self._groups[0])
        except TimeoutError:
            self._late()
            return
        self._holds_all()
        self._yield(self._groups[0])
        _pause(self._world.dice.about(0.4))

    def _acquire(self, group: str) -> Lease:
        """Wait for the devices of *group*, and work on them."""
        world, run = self._world, self._run
        run.waits_since = run.waits_since or world.loop.time()
        timeout = world.dice.about(3.0) if world.dice.coin(0.1) else None
        lease = self._sessions[group].acquire("phase", timeout)
        self._enter(group, lease.epoch)
        return lease

    def _enter(self, group: str, epoch: int) -> None:
        self._leases[group] = epoch
        self._world.happens("holds", self._run.job, group, epoch)
        self._world.entered(self._run, group, epoch)

    def _late(self) -> None:
        self._world.happens("late", self._run.job)
        _pause(self._world.dice.about(0.3))

    def _holds_all(self) -> None:
        self._run.waits_since = None
        self._run.turns -= 1
        _pause(self._world.dice.about(0.3))

    def _yield(self, group: str) -> None:
        world, run, epoch = self._world, self._run, self._leases.pop(group)
        world.happens("yields", run.job, group, epoch)
        world.observer.yields(run.job, group)
        session = self._sessions[group]
        try:
            session.yield_lease(epoch)
        except StaleLease as error:
            world.stale(run, epoch, error)
        world.remember_turn(run, group, epoch, session.heard_by)

    def _clear(self, error: JobFaulted) -> None:
        """Have the fault cleared, as a user does who can begin again. Raises *error* if that cannot be."""
        dice = self._world.dice
        for group in list(self._leases):
            self._yield(group)
        if dice.coin(0.3):
            raise error
        keep = dice.coin(0.2)
        for _ in range(_CLEARS):
            if all(self._is_clear(group, keep=keep) for group in self._groups):
                return
            keep = False
            _pause(dice.about(1.0))
        raise error

    def _is_clear(self, group: str, *, keep: bool) -> bool:
        """Clear the fault of a member, and tell whether it has none now."""
        session, world = self._sessions[group], self._world
        request = pb.ClearRequest(job_id=self._run.job, group=group, keep=keep)
        try:
            session._stub().Clear(request, timeout=30.0, metadata=session._credentials())
        except grpc.RpcError as error:
            world.happens("not cleared", self._run.job, group, error.details())
            return "is not faulted" in error.details()
        world.happens("cleared", self._run.job, group, keep)
        return True


class OneByOne(Script):
    """A job of two groups that acquires the one while it holds the other, in no order that all keep to."""

    def _turn(self) -> None:
        dice = self._world.dice
        try:
            for group in dice.sample(self._groups):
                self._acquire(group)
                _pause(dice.about(0.1))
            self._world.happens("one by one", self._run.job)
            self._holds_all()
        except TimeoutError:
            self._late()
        except (Busy, Deadlock) as error:
            self._world.happens(type(error).__name__, self._run.job)
        for group in dice.sample(list(self._leases)):
            self._yield(group)
        _pause(dice.about(0.4))


class AtOnce(Script):
    """A job of two groups that acquires both at once."""

    def __init__(self, world: World, run: Run) -> None:
        super().__init__(world, run)
        self._sessions[self._groups[0]] = self._session(self._groups[0], Several, self._groups[1:])

    def _turn(self) -> None:
        world, dice = self._world, self._world.dice
        first, *others = self._groups
        session = self._sessions[first]
        assert isinstance(session, Several)
        for each in self._sessions.values():
            each._finish_delivery(None)  # of the last turn's yields, as each session does for its own
        try:
            self._acquire(first)
        except TimeoutError:
            self._late()
            return
        except Busy as error:
            world.happens(type(error).__name__, self._run.job)
            _pause(dice.about(0.4))
            return
        if list(session.also) != others:
            world.observer.violated(f"job {self._run.job} got {first} and {session.also}, not {others}")
        for group, epoch in session.also.items():
            self._sessions[group].heard_by = session.heard_by
            self._enter(group, epoch)
        world.happens("all at once", self._run.job)
        self._holds_all()
        for group in dice.sample(list(self._leases)):
            self._yield(group)
        _pause(dice.about(0.4))


class Several(Session):
    """A session whose acquires ask for other groups too. *also* are the epochs of the last grant's."""

    def __init__(self, member: Member, more: list[str], tell: Any) -> None:
        super().__init__(member, tell)
        self._more = more
        self.also: dict[str, int] = {}

    def _stub(self) -> Any:
        return _Asking(super()._stub(), self._more, self._heard)

    def _heard(self, update: pb.AcquireUpdate) -> pb.AcquireUpdate:
        if update.HasField("granted"):
            self.also = {lease.group: lease.epoch for lease in update.granted.also}
        return update


class _Asking:
    """A stub that adds groups to what is asked for."""

    def __init__(self, stub: Any, more: list[str], heard: Any) -> None:
        self._stub, self._more, self._heard = stub, more, heard
        self.Yield, self.Clear = stub.Yield, stub.Clear

    def AcquireSoon(self, request: pb.AcquireRequest, **call: Any) -> pb.AcquireUpdate:
        request.also.extend(self._more)
        return self._heard(self._stub.AcquireSoon(request, **call))

    def Acquire(self, request: pb.AcquireRequest, **call: Any) -> Any:
        # The first call has added them.
        return self._stub.Acquire(request, **call).through(self._heard)


def _pause(seconds: float) -> None:
    await_only(asyncio.sleep(seconds))
