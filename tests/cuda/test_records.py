"""What is known of saved contexts, on a disk that takes nothing for a while."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_interleave.node_agent.backends.cuda.helpers import Helpers
from slurm_interleave.node_agent.backends.cuda.records import Record, Records
from slurm_interleave.node_agent.processes import Process
from tests.small_disk import small_disk

SAVED = Record(True, (Process(17, 1),), {"GPU-1": 5}, (0,))


def test_what_the_disk_does_not_take_is_kept_elsewhere_until_it_takes_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, spare = tmp_path / "cuda.json", tmp_path / "run" / "cuda.json"
    spare.parent.mkdir()
    records = Records(path, spare)
    records.put("16", SAVED)
    path.with_suffix(".new").mkdir()  # nothing can be written now

    records.put("17", SAVED)
    records.forget("16")

    assert Records(path, spare).jobs() == ["17"]
    assert "records.unwritten" in caplog.messages
    path.with_suffix(".new").rmdir()
    records.put("18", SAVED)
    assert not spare.exists()
    assert sorted(Records(path, spare).jobs()) == ["17", "18"]


async def test_helpers_hold_their_lock_on_a_disk_that_is_read_only(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        lock = disk.seen / "cuda.helpers"
        lock.touch()
        disk.remount("ro")

        await Helpers(["true"], 1, lock).close()
