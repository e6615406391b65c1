"""`interleave run`: a job's command that `interleave drain` can save and that goes on where it was."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import click
import grpc

from slurm_interleave.client.connect import open_channel
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc

_CHUNK = 1 << 16
_CANNOT_RUN = 127
_LAST_WORDS_S = 1.0
# Slurm sends these to all processes of the job, the command among them.
_LEFT_TO_IT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
def run(command: tuple[str, ...]) -> None:
    """Run COMMAND in a job script, so that `interleave drain` can save it with all that it started.

    When the job was saved and is started again, COMMAND is not begun anew: its saved processes come back and
    go on. If they cannot be brought back, it says why and begins COMMAND from its start. Elsewhere it just
    runs COMMAND.
    """
    code = _resumed() if os.environ.get("INTERLEAVE_RESUME") else None
    sys.exit(_run(command) if code is None else code)


def _run(command: Sequence[str]) -> int:
    with _relayed() as (stdout, stderr):
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
        _leave_signals()
        code = process.wait()
    return code if code >= 0 else 128 - code


def _resumed() -> int | None:
    """Bring the saved processes back and wait for their end; None if that cannot be."""
    back = False
    with open_channel(os.environ.get("INTERLEAVE_SOCKET", "")) as channel, _relayed() as (stdout, stderr):
        stub: Any = rpc.JobAgentStub(channel)
        request = pb.ResumeRequest(pid=os.getpid(), stdout=stdout, stderr=stderr)
        try:
            for update in stub.Resume(request):
                if update.WhichOneof("update") == "exit_code":
                    return int(update.exit_code)
                back = True
                _leave_signals()
                click.echo(f"interleave run: resumed, as process {update.pid}", err=True)
        except grpc.RpcError as error:
            why = str(error.details())
    if back:
        click.echo(f"interleave run: how the resumed processes ended is not known: {why}", err=True)
        return 1
    click.echo(f"interleave run: cannot resume, so it begins from the start: {why}", err=True)
    return None


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


def _leave_signals() -> None:
    for number in _LEFT_TO_IT:
        signal.signal(number, signal.SIG_IGN)
