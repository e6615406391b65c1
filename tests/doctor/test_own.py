"""What is said of an orchestrator's answer and of a configuration, and the command as a whole."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from slurm_interleave.client.cli.interleave import main
from slurm_interleave.client.core import groups
from slurm_interleave.client.doctor import own
from slurm_interleave.client.doctor.own import Answer, judge, sections
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from tests.cli.server import GivenOrchestrator, free_address, served

OWN = version("slurm-interleave")


def answer(**changes: Any) -> Answer:
    return replace(Answer("head:1", "1.2", round_trip_s=0.0021, ahead_s=0.0), **changes)


def test_each_section_that_some_program_reads_is_known() -> None:
    package = Path(own.__file__).parents[2]
    files = [
        path
        for folder in ("client", "orchestrator", "node_agent")
        for path in (package / folder).rglob("*.py")
    ]
    read = {
        name
        for file in files
        for name in re.findall(r'load_(?:section|tables)\(\w+, "(\w+)"', file.read_text())
    }

    assert {*read, groups.SECTION} == set(own.SECTIONS)


@pytest.mark.parametrize(
    ("given", "levels"),
    [
        ({}, {"orchestrator": "ok", "clock": "ok"}),
        ({"ahead_s": 20.0}, {"orchestrator": "ok", "clock": "warning"}),
        ({"ahead_s": -20.0}, {"orchestrator": "ok", "clock": "warning"}),
        ({"ahead_s": -301.0}, {"orchestrator": "ok", "clock": "error"}),
        ({"version": "1.1"}, {"orchestrator": "warning", "clock": "ok"}),
        (
            {"version": "", "ahead_s": -1.7e9},
            {"orchestrator": "warning"},
        ),  # an older one does not say the time either
    ],
)
def test_an_answer_is_judged_by_its_version_and_its_clock(
    given: dict[str, Any], levels: dict[str, str]
) -> None:
    found = list(judge(answer(**given), "1.2"))

    assert {one.check: one.level.value for one in found} == levels
    assert "head:1 answers in 2.1 ms" in found[0].text
    assert all(one.advice for one in found if one.level.value != "ok")


def test_it_is_said_which_clock_is_ahead() -> None:
    assert "20.0 s behind the" in list(judge(answer(ahead_s=20.0), "1.2"))[1].text
    assert "20.0 s ahead of the" in list(judge(answer(ahead_s=-20.0), "1.2"))[1].text


def test_a_section_that_nobody_reads_is_an_error_with_the_nearest_one(tmp_path: Path) -> None:
    path = tmp_path / "interleave.toml"
    path.write_text("[placment]\nenabled = true\n[client]\n")

    found = sections(path)

    assert found is not None
    assert "section [placment]" in found.text
    assert found.advice == "did you mean [placement]?"
    path.write_text("[placement]\n[cuda]\n[sim]\n[groups.a]\nnodes = []\n")
    assert sections(path) is None
    assert sections(None) is None


def written(tmp_path: Path, address: str) -> str:
    path = tmp_path / "interleave.toml"
    here = f'state_dir = "{tmp_path}"\nrun_dir = "{tmp_path}"'
    path.write_text(
        f'[client]\norchestrator = "{address}"\nauth = "none"\n'
        f'[agent]\n{here}\n[orchestrator]\nsocket = "{tmp_path}/none"\n'
    )
    return str(path)


def test_the_command_prints_a_line_for_each_check_and_succeeds_where_all_is_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = GivenOrchestrator(reply=pb.StatusReply(version=OWN, now=time.time()))
    with served(given) as address:
        code = main(["doctor", "--config", written(tmp_path, address)])

    lines = capsys.readouterr().out.splitlines()
    assert code == 0
    assert {line.split()[0] for line in lines} == {"ok"}
    assert [line.split()[1] for line in lines] == [
        "configuration:",
        "orchestrator:",
        "clock:",
        "slurm:",
        "agent:",
    ]


def test_an_error_makes_exit_status_1_and_json_has_all_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = free_address()

    code = main(["doctor", "--json", "--node", "n1", "--config", written(tmp_path, address)])

    found = {one["check"]: one for one in json.loads(capsys.readouterr().out)["findings"]}
    assert code == 1
    assert {check for check, one in found.items() if one["level"] == "error"} == {"orchestrator", "agent"}
    assert address in found["orchestrator"]["text"]
    assert found["agent"]["advice"] == "start interleave-agent here"


@pytest.mark.parametrize(
    ("toml", "check", "text"),
    [
        ("[client]\nadress = 1\n", "configuration", "did you mean 'auth'|no key 'adress'"),
        ("[placement]\ngateway = 'rest'\n", "orchestrator's configuration", "gateway 'rest' is unknown"),
        ("[agent]\nbackend = 'x'\n", "agent's configuration", "backend = 'x' is not known"),
        ("not toml", "configuration", "cannot be read as TOML"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_a_finding_and_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], toml: str, check: str, text: str
) -> None:
    path = tmp_path / "interleave.toml"
    path.write_text(toml)

    code = main(["doctor", "--config", str(path)])

    shown = capsys.readouterr().out
    assert code == 1
    [line] = [line for line in shown.splitlines() if line.startswith(f"error    {check}:")]
    assert any(part in line for part in text.split("|"))
