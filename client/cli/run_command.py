"""`interleave run`: a program as it is takes turns, and `interleave drain` can save it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click
import grpc

from slurm_interleave.client.cli.run_signals import passing_on
from slurm_interleave.client.cli.run_turns import PHASE, Turns
from slurm_interleave.client.connect import open_channel
from slurm_interleave.client.core.errors import BadArgument, InterleaveError
from slurm_interleave.client.interleaver import Interleaver
from slurm_interleave.client.job_ranks import JobRanks
from slurm_interleave.client.waiting import say
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc

_CHUNK = 1 << 16
_CANNOT_RUN = 127
_LAST_WORDS_S = 1.0


@click.command(
    short_help="Run a command that need not know of turns.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option(
    "--idle-yield",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Let others have the devices when COMMAND has not used them for so long (cuda backend).",
)
@click.option("--own-turns", is_flag=True, help="COMMAND takes its turns itself.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
def run(command: tuple[str, ...], idle_yield: float | None, own_turns: bool) -> None:
    """Run COMMAND in a job script: it need not know of turns, and `interleave drain` can save it.

    COMMAND begins when the job has its devices, and has them until it ends; with --idle-yield others may
    have them while it does not use them: COMMAND stands still where it needs them next, until its turn comes.
    Under srun, all tasks of a step begin together. Ctrl-C and other signals end COMMAND as without `run`.

    When the job was drained and is started again, COMMAND is not begun anew: its saved processes come back
    and go on. If they cannot be brought back, it says why and begins COMMAND from its start. Outside an
    interleaved job it just runs COMMAND.
    """
    if own_turns and idle_yield is not None:
        raise BadArgument("--idle-yield is for a command that takes no turns itself; leave --own-turns out")
    ranks = JobRanks(Interleaver(None)) if own_turns else JobRanks.from_env()
    code = _resumed(ranks.interleaver, idle_yield) if os.environ.get("INTERLEAVE_RESUME") else None
    if code is None:
        code = _in_turns(command, ranks, idle_yield)
    try:
        ranks.close()
    except InterleaveError as error:
        say(str(error))
    sys.exit(code)


def _in_turns(command: Sequence[str], ranks: JobRanks, idle_s: float | None) -> int:
    """Run *command* while the job holds its devices; return its exit code, whatever becomes of the lease."""
    code: int | None = None
    try:
        with ranks.turn(PHASE) if ranks.interleaver.active else contextlib.nullcontext():
            code = _run(command, ranks.interleaver if ranks.leads else Interleaver(None), idle_s)
            if code:
                raise _Failed(f"exit code {code}")  # told to the other ranks, who may wait for this one
    except _Failed:
        pass
    except TimeoutError as error:
        raise InterleaveError(str(error)) from None
    except InterleaveError as error:
        if code is None:
            raise
        say(str(error))
    return code or 0


class _Failed(Exception):
    """The command has failed."""


def _run(command: Sequence[str], mine: Interleaver, idle_s: float | None) -> int:
    # The signals are taken before there is a command, or one could end `run` and leave the command behind.
    with _relayed() as (stdout, stderr), passing_on() as signals:
        try:
            # In a session of its own, since what is saved may not share one with what is not.
            process = subprocess.Popen(
                list(command),
                stdout=stdout,
                stderr=stderr,
                env={**os.environ, "INTERLEAVE_RUN": "1"},
                start_new_session=True,
            )
        except OSError as error:
            click.echo(f"interleave run: {command[0]} cannot be run: {error.strerror}", err=True)
            return _CANNOT_RUN
        signals.pass_to(process.pid)
        with _turns(mine, idle_s, process.pid):
            code = process.wait()
    return code if code >= 0 else 128 - code


@contextlib.contextmanager
def _turns(mine: Interleaver, idle_s: float | None, session: int) -> Iterator[None]:
    """Let others have turns for the body of a `with`; where that loses the device state, kill the session."""
    if not mine.active:
        yield
        return

    def kill() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(session, signal.SIGKILL)

    turns = Turns(mine, idle_s, kill)
    try:
        yield
    finally:
        turns.close()


def _resumed(mine: Interleaver, idle_s: float | None) -> int | None:
    """Bring the saved processes back and wait for their end; None if that cannot be."""
    ended: Callable[[], object] | None = None
    with (
        open_channel(os.environ.get("INTERLEAVE_SOCKET", "")) as channel,
        _relayed() as (stdout, stderr),
        contextlib.ExitStack() as turns,
    ):
        stub: Any = rpc.JobAgentStub(channel)
        request = pb.ResumeRequest(pid=os.getpid(), stdout=stdout, stderr=stderr)
        try:
            for update in stub.Resume(request):
                if update.WhichOneof("update") == "exit_code":
                    return int(update.exit_code)
                ended = turns.enter_context(_end_of(update.pid))
                turns.enter_context(passing_on()).pass_to(update.pid)
                turns.enter_context(_turns(mine, idle_s, update.pid))
                click.echo(f"interleave run: resumed, as process {update.pid}", err=True)
        except grpc.RpcError as error:
            why = str(error.details())
        if ended is not None:
            # Their parent, the node's agent, is gone or out of reach, as when it is upgraded. They live on.
            ended()
            click.echo(f"interleave run: how the resumed processes ended is not known: {why}", err=True)
            return 1
    click.echo(f"interleave run: cannot resume, so it begins from the start: {why}", err=True)
    return None


@contextlib.contextmanager
def _end_of(pid: int) -> Iterator[Callable[[], object]]:
    """Give what waits for the end of a process."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:  # it has ended
        yield lambda: None
        return
    try:
        yield lambda: select.select([descriptor], [], [])
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _relayed() -> Iterator[tuple[int, int]]:
    """Give the writing ends of pipes to this process's output and error: one pipe where these are one file.

    At the end what was written is relayed.
    """
    first, second = _file_of(1), _file_of(2)
    pipes = [(os.pipe(), 1)]
    if first != second:
        pipes.append((os.pipe(), 2))
    relays = [threading.Thread(target=_relay, args=(read, to), daemon=True) for (read, _), to in pipes]
    for relay in relays:
        relay.start()
    writing = [write for (_, write), _ in pipes]
    try:
        yield writing[0], writing[-1]
    finally:
        for write in writing:
            os.close(write)
        for relay in relays:
            relay.join(_LAST_WORDS_S)  # what the command left running may hold the pipe for longer


def _relay(read: int, to: int) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(read, _CHUNK):
            while data:
                data = data[os.write(to, data) :]
    os.close(read)


def _file_of(descriptor: int) -> tuple[int, int]:
    about = os.fstat(descriptor)
    return about.st_dev, about.st_ino
