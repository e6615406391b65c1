"""Helper processes whose end nobody waits for any more."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lab.processes import wait_until
from slurm_interleave.node_agent.backends.cuda import helpers
from slurm_interleave.node_agent.backends.cuda.helpers import Helper, Helpers
from tests.stub_driver.stub import Stub

SLEEPS = ["sleep", "1000"]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the pids of the helpers that are started."""
    pids: list[int] = []
    start = helpers._start

    def noted(argv: list[str], end: int, lock: int) -> subprocess.Popen[bytes]:
        process = start(argv, end, lock)
        pids.append(process.pid)
        return process

    monkeypatch.setattr(helpers, "_start", noted)
    monkeypatch.setattr(helpers, "_AFTER_END_S", 0.01)
    return pids


def is_reaped(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()  # a zombie is there


async def left(lock: int) -> None:
    """End a helper's last call without waiting for its end."""
    helper = await Helper.start(SLEEPS, lock)
    helper.release()
    await helper.ended()


async def left_at_once(lock: int) -> None:
    """The same where the agent does not even wait a little."""
    (await Helper.start(SLEEPS, lock)).release()


async def cut_off(lock: int) -> None:
    """Be cancelled in the moment when a helper was started."""

    async def never(*_: Any, **__: Any) -> None:
        raise asyncio.CancelledError

    opened = asyncio.open_unix_connection
    asyncio.open_unix_connection = never  # type: ignore[assignment]
    try:
        with pytest.raises(asyncio.CancelledError):
            await Helper.start(SLEEPS, lock)
    finally:
        asyncio.open_unix_connection = opened


@pytest.mark.parametrize("leave", [left, left_at_once, cut_off])
async def test_a_helper_that_is_left_alone_is_reaped_when_it_ends(
    started: list[int], tmp_path: Path, leave: Any
) -> None:
    with (tmp_path / "lock").open("w") as lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()  # what earlier tests have left
        warnings.simplefilter("error")
        await leave(lock.fileno())
        gc.collect()  # a Popen that is dropped while its process lives complains

    [pid] = started
    os.kill(pid, signal.SIGKILL)

    assert await asyncio.to_thread(wait_until, partial(is_reaped, pid), 10)


async def test_a_helper_whose_call_ends_after_the_agent_needs_none_any_more_ends_too(
    started: list[int], tmp_path: Path
) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    answers = f'read call; cat {go}; echo \'{{"code": 0, "value": 1}}\'; read call'
    some = Helpers(["sh", "-c", answers], 2, tmp_path / "lock")
    asking = asyncio.create_task(some.ask("lock", 30))

    with await asyncio.to_thread(go.open, "w"):
        await some.close()

    assert await asking == (0, 1)
    [pid] = started
    assert await asyncio.to_thread(wait_until, partial(is_reaped, pid), 10)


def test_a_helper_sees_the_driver_and_the_devices_as_the_node_has_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LD_PRELOAD", "LD_LIBRARY_PATH"):
        monkeypatch.setenv(name, "set by whoever started the agent")

    started_with = helpers.environment()

    assert not {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LD_PRELOAD"} & started_with.keys()
    assert "LD_LIBRARY_PATH" in started_with  # where the driver lies elsewhere


def test_a_helper_whose_agent_is_gone_ends_though_its_call_never_comes_back(stub: Stub) -> None:
    stub.fault("state", 0, delay_ms=600_000)
    code = (
        "from slurm_interleave.node_agent.backends.cuda import worker; worker._AFTER_S = 0.2; worker.main()"
    )
    request = {"call": "state", "limit_s": 0.1, "arguments": {"pid": 1}}

    ended = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(request), text=True, capture_output=True, timeout=60
    )

    assert (ended.returncode, ended.stdout) == (1, "")
