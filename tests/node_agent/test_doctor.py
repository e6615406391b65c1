"""What an agent says of itself, and what `interleave doctor` makes of it."""

from __future__ import annotations

import os
import socket
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_interleave.client.doctor.finding import Host, Level
from slurm_interleave.node_agent.config import AgentConfig
from slurm_interleave.node_agent.doctor import findings, judge

SAYS = {"node": "n1", "version": "1", "backends": ["sim", "app_channel"], "devices": 2, "connected": True}


@pytest.mark.parametrize(
    ("given", "level", "text"),
    [
        ({}, Level.OK, "node n1, 2 devices, backends sim, app_channel"),
        ({"connected": False}, Level.ERROR, "not connected to the orchestrator at 127.0.0.1:50051"),
        ({"backends": ["noop"]}, Level.WARNING, "runs backend noop, the configuration says sim"),
        ({"version": "0"}, Level.WARNING, "runs version 0, here is 1"),
    ],
)
def test_an_agent_is_judged_by_what_it_says(given: dict[str, Any], level: Level, text: str) -> None:
    found = judge({**SAYS, **given}, AgentConfig(), "1")

    assert (found.check, found.level) == ("agent", level)
    assert text in found.text
    assert bool(found.advice) == (level is not Level.OK)


def configured(tmp_path: Path, more: str = "") -> Host:
    path = tmp_path / "interleave.toml"
    path.write_text(f'[agent]\nstate_dir = "{tmp_path}"\nrun_dir = "{tmp_path}"\n{more}')
    return Host(path, "somewhere")


def test_where_no_agent_was_ever_started_none_is_missed(tmp_path: Path) -> None:
    host = configured(tmp_path)
    assert [one.level for one in findings(host)] == [Level.OK]

    (tmp_path / "agent.lock").touch()
    [found] = findings(host)
    assert (found.level, found.advice) == (Level.ERROR, "start interleave-agent here")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become nobody")
def test_who_may_not_ask_the_agent_is_told_to_do_it_as_root() -> None:
    # Not below pytest's folders, which nobody but their owner may enter.
    with tempfile.TemporaryDirectory() as name, socket.socket(socket.AF_UNIX) as agent:
        folder = Path(name)
        folder.chmod(0o755)
        agent.bind(f"{folder}/agent.sock")
        agent.listen()
        (folder / "agent.sock").chmod(0o600)
        host = replace(configured(folder), node="n1")
        os.seteuid(65534)
        try:
            found = list(findings(host))
        finally:
            os.seteuid(0)

    assert [(one.level, one.advice) for one in found] == [(Level.WARNING, "run interleave doctor as root")]


def test_what_the_cuda_backend_lacks_is_named(tmp_path: Path) -> None:
    (tmp_path / "agent.lock").touch()

    _, *found = findings(configured(tmp_path, 'backend = "cuda"\n'))

    assert [one.check for one in found] == ["backend cuda"] * len(found)
    if not Path("/dev/nvidiactl").exists():
        assert [one.text.partition(":")[0] for one in found] == ["no_driver"]
        assert found[0].level is Level.ERROR
