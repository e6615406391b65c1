"""`interleave timeline` as a user meets it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from google.protobuf import json_format

from slurm_interleave.client.cli.interleave import main
from tests.cli.conftest import Call
from tests.cli.demo import orchestrator
from tests.cli.server import GivenOrchestrator
from tests.cli.turns import BEGAN, Member, take_turns

__all__ = ["orchestrator"]


def test_the_timeline_is_written_with_the_work_of_the_devices(
    call: Call, orchestrator: GivenOrchestrator, tmp_path: Path
) -> None:
    work = tmp_path / "work.jsonl"
    interval = {"start": BEGAN + 0.1, "end": BEGAN + 1.1, "job": "17", "name": "rollout", "device": 0}
    work.write_text(json.dumps(interval) + "\n")
    page = tmp_path / "run.html"

    outcome = call(main, "timeline", "-o", str(page), "-j", "17,18", "--work", str(work), "--title", "A run")

    assert (outcome.status, outcome.out) == (0, f"{page}: 8 slices of 2 jobs\n")
    assert "<title>A run</title>" in page.read_text()
    assert "device computes" in page.read_text()
    assert list(orchestrator.requests[0].job_ids) == ["17", "18"]


def test_a_timeline_of_nothing_says_so_and_writes_nothing(
    call: Call, orchestrator: GivenOrchestrator, tmp_path: Path
) -> None:
    orchestrator.slices.clear()

    outcome = call(main, "timeline", "-o", str(tmp_path / "run.html"))

    assert outcome.status == 1
    assert "no slices match" in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_a_timeline_without_what_draws_says_which_extra_to_install(
    call: Call, orchestrator: GivenOrchestrator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "vl_convert"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "vl_convert", None)

    outcome = call(main, "timeline", "-o", str(tmp_path / "run.html"), "-j", "17")

    assert outcome.status == 1
    assert "pip install 'slurm-interleave[timeline]'" in outcome.err


def test_a_timeline_can_be_drawn_from_a_file_of_slices(call: Call, tmp_path: Path) -> None:
    slices, _ = take_turns([Member("17", "a", BEGAN), Member("18", "b", BEGAN + 0.4)], rounds=1)
    file = tmp_path / "slices.json"
    file.write_text("".join(json_format.MessageToJson(item, indent=None) + "\n" for item in slices))
    page = tmp_path / "run.html"

    outcome = call(main, "timeline", "-o", str(page), "-j", "17", "--from-json", str(file))

    assert outcome.out == f"{page}: 2 slices of 1 jobs\n"
