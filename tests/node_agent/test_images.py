"""Images of saved processes: what is in them, whose they are, and what becomes of those before."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from slurm_interleave.client.core.errors import WrongState
from slurm_interleave.client.core.states import Context
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.node_agent.backends.noop import NoopBackend
from slurm_interleave.node_agent.contexts import JobContext
from slurm_interleave.node_agent.images import Image, Images
from tests.node_agent.saving import JOB, ORDER, command, criu, drains

__all__ = ["command"]


class Carries(NoopBackend):
    """A backend that must know something of its own to restore a job."""

    @override
    def carried(self, job: str) -> dict[str, Any]:
        return {"of": job, "driver": "580.1"}


async def test_an_image_has_what_it_takes_to_restore_the_device_state_and_the_token_that_is_known(
    tmp_path: Path, command: subprocess.Popen[bytes]
) -> None:
    saving, job = drains(tmp_path, criu(tmp_path), backend=Carries("n1", 1))
    job.context = JobContext(Context.SAVED, 5)
    job.resumed_token = "token of their first run"

    await saving.save(ORDER)

    image = Images(tmp_path / "images").find(JOB, os.getuid(), "demo")
    assert image is not None
    assert image.carried == {"of": JOB, "driver": "580.1"}
    assert (image.context["state"], image.context["bytes"]) == ("saved", 5)
    assert image.token == "token of their first run"


async def test_an_image_can_be_read_by_agents_that_know_less_and_has_room_for_more(
    tmp_path: Path, command: subprocess.Popen[bytes]
) -> None:
    saving, _ = drains(tmp_path, criu(tmp_path))
    await saving.save(ORDER)
    file, images = tmp_path / "images" / JOB / "about.json", Images(tmp_path / "images")
    about = json.loads(file.read_text())

    first_release = {"job_id", "uid", "group", "token", "pid", "outputs", "bytes", "context", "carried"}
    assert set(about) == first_release
    image = images.find(JOB, os.getuid(), "demo")
    assert image is not None
    assert image.attempt == ORDER.attempt
    file.write_text(json.dumps({**about, "of a later release": 1}))
    assert images.find(JOB, os.getuid(), "demo") == image


@pytest.mark.parametrize("text", [b"{", b"", b"5", b"[]", b"{}", b'{"context": {}}', b"\xff", b"[" * 100_000])
def test_an_image_that_cannot_be_read_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: bytes
) -> None:
    (tmp_path / JOB).mkdir()
    (tmp_path / JOB / "about.json").write_bytes(text)

    assert Images(tmp_path).find(JOB, os.getuid(), "demo") is None
    assert "image.unreadable" in caplog.messages


async def test_an_image_is_for_its_own_user_and_group_alone(
    tmp_path: Path, command: subprocess.Popen[bytes]
) -> None:
    saving, _ = drains(tmp_path, criu(tmp_path))
    await saving.save(ORDER)
    images = Images(tmp_path / "images")

    assert images.find(JOB, os.getuid() + 1, "demo") is None
    assert images.find(JOB, os.getuid(), "other") is None
    assert images.find("18", os.getuid(), "demo") is None


async def test_an_image_that_cannot_be_brought_back_is_kept_aside_in_place_of_an_earlier_one(
    tmp_path: Path,
) -> None:
    saving, job = drains(tmp_path, criu(tmp_path))
    images, kept = Images(tmp_path / "images"), tmp_path / "images" / f".{JOB}.failed"
    for number in ("first", "second"):
        (images.begin(JOB) / number).touch()
        images.finish(Image(JOB, os.getuid(), "demo", "token of before", 1 << 22, {}))

        with pytest.raises(WrongState, match=f"what was saved is kept in {kept}"):
            await anext(saving.resume(job, pb.ResumeRequest(pid=os.getpid())))

        assert (kept / number).exists()
        assert images.find(JOB, os.getuid(), "demo") is None
    assert not (kept / "first").exists()


async def test_an_image_takes_the_place_of_one_that_was_never_brought_back(
    tmp_path: Path, command: subprocess.Popen[bytes]
) -> None:
    images = Images(tmp_path / "images")
    (images.begin(JOB) / "earlier").touch()
    images.finish(Image(JOB, os.getuid(), "demo", "token of before", 1 << 22, {}))
    (images.begun(JOB) / "cut short").mkdir(parents=True)
    saving, _ = drains(tmp_path, criu(tmp_path))

    assert (await saving.save(ORDER)).ok

    image = images.find(JOB, os.getuid(), "demo")
    assert image is not None
    assert image.pid == command.pid
    left = {path.name for path in images.folder(JOB).iterdir()}
    assert left == {"about.json", "no-plugins", "pages-1.img"}
