"""Where drain, yield and acquire stand, with one process."""

from __future__ import annotations

import pytest

from slurm_interleave.client.core.errors import InterleaveError
from slurm_interleave.client.integrations.ranks import Alone, TorchRanks
from slurm_interleave.client.integrations.turns import Turns
from slurm_interleave.client.interleaver import Interleaver
from tests.frameworks.traces import Traced, traced


def test_a_boundary_drains_yields_and_acquires_in_this_order() -> None:
    interleaver = Traced()
    turns = Turns(interleaver, drain=lambda: interleaver.work("drain"))

    with turns.session("load"):
        turns.boundary("step")
        interleaver.work("step 1")
        turns.boundary("step")
        interleaver.work("step 2")

    assert interleaver.trace == [
        "acquire load",
        "step 1",
        "drain",
        "yield",
        "acquire step",
        "step 2",
        "drain",
        "yield",
    ]


def test_after_leaving_a_session_begins_a_new_lease() -> None:
    turns, interleaver = traced()

    with turns.session("load"):
        turns.leave()
        turns.leave()
    with turns.session("save"):
        interleaver.work("save")

    assert interleaver.trace == ["acquire load", "yield", "acquire save", "save", "yield"]


def test_a_session_whose_body_fails_yields_and_keeps_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    turns, interleaver = traced()

    with pytest.raises(ValueError, match="of the body"), turns.session():
        raise ValueError("of the body")

    assert interleaver.trace == ["acquire", "yield"]
    assert not turns.holding


def test_a_framework_that_was_made_without_the_devices_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    turns, interleaver = traced()

    turns.boundary("step")

    assert interleaver.trace == ["acquire step"]
    assert "call start() before it is made" in capsys.readouterr().err


def test_a_boundary_that_is_not_granted_holds_nothing() -> None:
    turns, interleaver = traced()
    turns.start()
    turns.boundary()
    interleaver.refuses = "its state is lost"

    with pytest.raises(InterleaveError, match="its state is lost"):
        turns.boundary()

    assert interleaver.trace == ["acquire", "yield"]
    assert not turns.holding


def test_outside_an_interleaved_job_nothing_is_drained_and_the_devices_are_there() -> None:
    drained: list[None] = []
    turns = Turns(Interleaver(None), drain=lambda: drained.append(None))

    with turns.session():
        turns.boundary()
        turns.boundary()

    assert turns.holding
    assert drained == []


def test_the_rank_is_what_the_launcher_says() -> None:
    assert isinstance(TorchRanks.from_env({}), Alone)
    assert isinstance(TorchRanks.from_env({"RANK": "0", "WORLD_SIZE": "1"}), Alone)
    assert TorchRanks.from_env({"RANK": "0", "WORLD_SIZE": "2"}).leads
    assert not TorchRanks.from_env({"RANK": "1", "WORLD_SIZE": "2"}).leads
