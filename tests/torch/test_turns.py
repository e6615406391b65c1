"""`interleave_torch` in one process; tests/torch/ranks.py has it in two."""

from __future__ import annotations

import pytest

from slurm_interleave.client.core.errors import WrongState
from slurm_interleave.client.integrations.torch_device import HostDevice
from slurm_interleave.client.integrations.torch_turns import TorchTurns, interleave_torch
from slurm_interleave.client.integrations.turns import Turns
from slurm_interleave.client.interleaver import Interleaver
from tests.torch.granting import Granting
from tests.torch.needs import torch
from tests.torch.training import Training


@pytest.fixture
def session() -> Granting:
    return Granting()


@pytest.fixture
def training() -> Training:
    return Training()


@pytest.fixture
def turns(session: Granting, training: Training) -> TorchTurns:
    made = interleave_torch(
        training.model, training.optimizer, turns=Turns(Interleaver(session)), device=HostDevice()
    )
    assert made.offload.workload is None  # no agent has told this process where it listens
    return made


def test_state_leaves_between_turns_alone_and_is_there_in_each(turns: TorchTurns, training: Training) -> None:
    alone = Training()
    losses = [alone.step() for _ in range(3)]

    again = []
    for _ in range(3):
        with turns.turn("train"):
            with pytest.raises(WrongState, match="holds its lease"):
                turns.offload.suspend()
            again.append(training.step())
        turns.offload.suspend()
        assert turns.offload.resident_bytes() == 0

    turns.offload.resume()
    assert again == losses
    assert training.digest() == alone.digest()
    assert turns.offload.moves == 3


def test_a_boundary_within_a_turn_lets_others_have_one(turns: TorchTurns, session: Granting) -> None:
    with turns.turn("first half"), turns.turn("inside"):
        turns.boundary("second half")

    assert session.phases == ["first half", "second half"]
    assert session.yielded == [1, 2]


def test_a_turn_that_fails_yields_and_says_why_it_failed(turns: TorchTurns, session: Granting) -> None:
    with pytest.raises(RuntimeError, match="a bug"), turns.turn():
        raise RuntimeError("a bug")

    assert (turns.turns.holding, session.yielded) == (False, [1])


def test_what_is_made_in_the_first_turn_can_be_added(session: Granting) -> None:
    turns = interleave_torch(turns=Turns(Interleaver(session)), device=HostDevice())
    turns.offload.suspend()
    assert turns.offload.moves == 0

    with turns.turn("load"):
        late = Training()
        turns.add(late.model, [late.optimizer], extra=[mean := torch.ones(3)])
        before = late.digest()
    turns.offload.suspend()
    gone = turns.offload.suspended_bytes
    with turns.turn():
        assert late.digest() == before
        assert mean.tolist() == [1, 1, 1]

    assert gone >= sum(each.nbytes for each in late.model.parameters())


def test_outside_an_interleaved_job_nothing_waits_or_moves(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INTERLEAVE_GROUP", raising=False)
    turns = interleave_torch(training.model, training.optimizer, device=HostDevice())

    with turns.turn("train"):
        training.step()
        turns.boundary()
    turns.close()

    assert turns.offload.moves == 0
    assert turns.offload.resident_bytes() > 0
