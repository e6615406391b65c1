"""`interleaved` as a process."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from slurm_interleave.client.connect import CHANNEL_OPTIONS
from slurm_interleave.orchestrator.door import SERVER_OPTIONS

PROGRAM = Path(sys.executable).with_name("interleaved")


def configure(folder: Path) -> Path:
    path = folder / "interleave.toml"
    path.write_text(
        f'[orchestrator]\nlisten = "127.0.0.1:0"\ndatabase = "sqlite:///{folder}/o.db"\n'
        f'socket = "{folder}/i.sock"\nauth = "none"\n'
    )
    return path


@contextmanager
def running(config: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start it; yield the process and its address."""
    argv = [str(PROGRAM), "--config", str(config)]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        ready = next(line for line in process.stderr if "event=ready" in line)
        port = next(word.partition("=")[2] for word in ready.split() if word.startswith("port="))
        try:
            yield process, f"127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(10)
            process.stderr.close()


def test_a_second_one_is_refused_and_hurts_neither_the_first_nor_its_socket(tmp_path: Path) -> None:
    config = configure(tmp_path)
    with running(config) as (first, _):
        argv = [str(PROGRAM), "--config", str(config)]
        second = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)

        assert second.returncode == 1
        assert second.stderr.count("\n") == 1
        assert f"pid {first.pid}" in second.stderr
        assert first.poll() is None
        assert (tmp_path / "i.sock").exists()


def test_strangers_cannot_read_its_database(tmp_path: Path) -> None:
    with running(configure(tmp_path)):
        modes = {path.name: path.stat().st_mode & 0o077 for path in tmp_path.glob("o.db*")}

    assert modes
    assert set(modes.values()) == {0}


@pytest.mark.timeout(60)
def test_a_quiet_connection_that_is_kept_alive_is_not_cut(tmp_path: Path) -> None:
    """gRPC ends a connection after a few pings that come more often than the server allows."""
    with running(configure(tmp_path)) as (_, address):
        often = (("grpc.keepalive_time_ms", 5_000), ("grpc.http2.max_pings_without_data", 0))
        states: list[grpc.ChannelConnectivity] = []
        options = [*often, ("grpc.keepalive_permit_without_calls", 1)]
        with grpc.insecure_channel(address, options=options) as channel:
            channel.subscribe(states.append, try_to_connect=True)
            grpc.channel_ready_future(channel).result(10)
            lost = _wait_for_loss(states, 22)
            channel.unsubscribe(states.append)

    assert not lost


def _wait_for_loss(states: list[grpc.ChannelConnectivity], seconds: float) -> bool:
    ends, tick = time.monotonic() + seconds, threading.Event()
    while time.monotonic() < ends:
        tick.wait(0.2)
        if states and states[-1] is not grpc.ChannelConnectivity.READY:
            return True
    return False


def test_our_channels_ping_no_more_often_than_the_server_allows() -> None:
    allowed = dict(SERVER_OPTIONS)["grpc.http2.min_ping_interval_without_data_ms"]

    assert dict(CHANNEL_OPTIONS)["grpc.keepalive_time_ms"] >= allowed
