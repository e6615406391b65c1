"""When the decorators acquire and yield; in the place of Ray's, references that end when told to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from slurm_interleave.client.core.errors import InterleaveError, StaleLease
from slurm_interleave.client.integrations.ray import RayTurns
from tests.frameworks.traces import Traced


class Reference:
    """Of a call that is under way until `end`."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def end(self) -> None:
        self.ended.set()


class Remote:
    """What `@ray.remote` makes of a function."""

    def __init__(self, interleaver: Traced, name: str, result: Any = None) -> None:
        self._function_name = f"module.{name}"
        self._interleaver, self._name, self._result = interleaver, name, result

    def options(self, **options: Any) -> Remote:
        return Remote(self._interleaver, f"{self._name} {options}", self._result)

    def remote(self, *args: Any) -> Any:
        self._interleaver.work(f"{self._name}{args}")
        return Reference() if self._result is None else self._result


def wait(references: list[Reference]) -> None:
    for reference in references:
        assert reference.ended.wait(10)


@pytest.fixture
def interleaver() -> Traced:
    return Traced()


@pytest.fixture
def turns(interleaver: Traced) -> Iterator[RayTurns]:
    turns = RayTurns(interleaver, wait)
    yield turns
    turns.close()


def test_the_devices_are_held_until_the_last_of_the_calls_under_way_ends(
    turns: RayTurns, interleaver: Traced
) -> None:
    sample = turns.task(Remote(interleaver, "sample"))

    first, second = sample.remote(1), sample.options(num_cpus=1).remote(2)
    second.end()
    third = sample.remote(3)
    first.end()
    third.end()
    turns.close()

    assert interleaver.trace == [
        "acquire sample",
        "sample(1,)",
        "sample {'num_cpus': 1}(2,)",
        "sample(3,)",
        "yield",
    ]


def test_an_actor_holds_them_while_it_is_made_and_in_each_method(
    turns: RayTurns, interleaver: Traced
) -> None:
    class Handle:
        ready = Reference()

        def __init__(self) -> None:
            self.__ray_ready__ = Remote(interleaver, "ready", self.ready)
            self.train = Remote(interleaver, "train")
            self.name = "a plain value"

    class Trainer:
        @staticmethod
        def remote() -> Handle:
            interleaver.work("init")
            return Handle()

    trainer = turns.actor(Trainer).remote()
    trainer.handle.ready.end()
    turns.close()
    trainer.train.remote(7).end()
    turns.close()

    assert trainer.name == "a plain value"
    assert interleaver.trace == [
        "acquire Trainer init",
        "init",
        "ready()",
        "yield",
        "acquire Trainer.train",
        "train(7,)",
        "yield",
    ]


def test_a_stream_of_results_ends_with_its_last_one(turns: RayTurns, interleaver: Traced) -> None:
    end = Reference()

    class Stream:
        def completed(self) -> Reference:
            return end

    turns.task(Remote(interleaver, "stream", Stream())).remote()
    assert "yield" not in interleaver.trace
    end.end()
    turns.close()

    assert interleaver.trace[-1] == "yield"


def test_a_call_that_cannot_be_made_yields(turns: RayTurns, interleaver: Traced) -> None:
    class Broken(Remote):
        def remote(self, *args: Any) -> Any:
            raise TypeError("too many arguments")

    with pytest.raises(TypeError, match="too many"):
        turns.task(Broken(interleaver, "sample")).remote(1)
    turns.close()

    assert interleaver.trace == ["acquire sample", "yield"]


def test_a_lease_that_was_taken_back_is_told_by_the_next_call(interleaver: Traced) -> None:
    class TakenBack(Traced):
        def yield_(self) -> None:
            held, self._now = self._now, None
            if held:
                raise StaleLease("epoch 1 was replaced by 2")

    interleaver = TakenBack()
    turns = RayTurns(interleaver, wait)
    turns.task(Remote(interleaver, "sample")).remote(1).end()

    with pytest.raises(StaleLease, match="replaced"):
        turns.close()


def test_a_ray_that_is_gone_yields_and_is_told(interleaver: Traced) -> None:
    def gone(references: list[Any]) -> None:
        raise ConnectionError("the cluster was stopped")

    turns = RayTurns(interleaver, gone)
    turns.task(Remote(interleaver, "sample")).remote(1)

    with pytest.raises(InterleaveError, match="the cluster was stopped"):
        turns.close()
    assert interleaver.trace[-1] == "yield"
