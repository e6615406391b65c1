from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from slurm_interleave.node_agent import sessions

CONNECTED = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(); input()"


def test_those_connected_to_a_socket_are_found_among_others(tmp_path: Path) -> None:
    path, other = tmp_path / "socket", tmp_path / "other"
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as elsewhere:
        for listening, where in ((server, path), (elsewhere, other)):
            listening.bind(str(where))
            listening.listen()
        argv, pipes = (
            [sys.executable, "-c", CONNECTED, str(path)],
            {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE},
        )
        with subprocess.Popen(argv, **pipes) as caller:  # type: ignore[call-overload]
            caller.stdout.readline()
            accepted, _ = server.accept()
            pids = [os.getpid(), caller.pid, (1 << 31) - 1]

            assert sessions.of(path, pids) == [caller.pid]
            assert sessions.of(other, pids) == []
            accepted.close()
            caller.kill()
            caller.wait()
            assert sessions.of(path, pids) == []
