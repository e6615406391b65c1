"""Our callback, experiment and trainer for SkyRL: lock traces on stubs, and the source of the real."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from slurm_interleave.client.core.errors import WrongState
from slurm_interleave.client.integrations import skyrl
from tests.frameworks.sources import source
from tests.frameworks.traces import Traced, traced

TRAINER, ASYNC = "skyrl/train/trainer.py", "skyrl/train/fully_async_trainer.py"
EXPERIMENT = "skyrl/train/entrypoints/main_base.py"


def callbacks() -> type:
    """Return the real base class of callbacks, which needs nothing."""
    path = "skyrl/train/utils/callbacks.py"
    return source("skyrl").built(path, "TrainingCallback", object)


class Trainer:
    """Fires the events of one callback around what uses the device."""

    def __init__(self, interleaver: Traced) -> None:
        self.interleaver, self.callbacks = interleaver, list[Any]()

    def add_callback(self, callback: Any) -> None:
        self.callbacks.append(callback)

    def fire(self, event: str) -> None:
        for callback in self.callbacks:
            getattr(callback, event)(self, None, None)

    def train(self) -> None:
        for _ in range(2):
            self.fire("on_step_start")
            self.interleaver.work("generate and train")
            self.fire("on_step_end")
            self.interleaver.work("save and sync")
            self.fire("on_log")
        self.fire("on_train_end")


class Experiment:
    def __init__(self, interleaver: Traced) -> None:
        self.interleaver = interleaver

    def get_trainer(self, *_: Any, **__: Any) -> Trainer:
        return Trainer(self.interleaver)

    def run(self) -> None:
        self.interleaver.work("engines and models")
        self.get_trainer().train()


def test_an_experiment_holds_the_devices_with_one_boundary_a_step() -> None:
    turns, interleaver = traced()

    skyrl.experiment(Experiment, callbacks(), turns)(interleaver).run()

    step = ["generate and train", "yield", "acquire step", "save and sync"]
    assert interleaver.trace == ["acquire init", "engines and models", *step, *step, "yield"]


def test_an_experiment_that_fails_yields() -> None:
    class Fails(Experiment):
        def run(self) -> None:
            raise RuntimeError("no room for the engine")

    turns, interleaver = traced()

    with pytest.raises(RuntimeError, match="no room"):
        skyrl.experiment(Fails, callbacks(), turns)(interleaver).run()

    assert interleaver.trace == ["acquire init", "yield"]


class AsyncTrainer:
    def __init__(self, interleaver: Traced) -> None:
        self.interleaver = interleaver

    async def _run_training(self, batch: int) -> int:
        self.interleaver.work("train")
        return batch

    def _profiler_step(self) -> None:
        pass

    def save_checkpoints(self) -> str:
        self.interleaver.work("save")
        return "folder"

    def save_models(self) -> None:
        self.interleaver.work("save model")

    async def train(self) -> None:
        for batch in range(2):
            self.interleaver.trace.append("wait for samples")
            assert await self._run_training(batch) == batch
            self.interleaver.work("sync")
            self._profiler_step()
            self.interleaver.trace.append("eval")
        assert await asyncio.to_thread(self.save_checkpoints) == "folder"
        await asyncio.to_thread(self.save_models)


def test_the_fully_asynchronous_trainer_holds_from_training_to_the_weight_sync_and_to_save() -> None:
    turns, interleaver = traced()

    asyncio.run(skyrl.async_trainer(AsyncTrainer, turns)(interleaver).train())

    step = ["wait for samples", "acquire train", "train", "sync", "yield", "eval"]
    saved = ["acquire save", "save", "yield", "acquire save", "save model", "yield"]
    assert interleaver.trace == [*step, *step, *saved]


def test_a_release_whose_trainer_is_made_otherwise_is_refused() -> None:
    turns, _ = traced()

    with pytest.raises(WrongState, match="Trainer of this SkyRL has no _run_training"):
        skyrl.async_trainer(Trainer, turns)


def test_skyrl_has_the_hooks_that_we_use_and_calls_them_where_we_think() -> None:
    code = source("skyrl")
    for event in ("on_step_end", "on_train_end"):
        found = code.parameters("skyrl/train/utils/callbacks.py", f"TrainingCallback.{event}")
        assert found == ["self", "trainer", "callback_input", "control"]
    assert code.parameters(TRAINER, "RayPPOTrainer.add_callback") == ["self", "callback"]
    train = code.files[TRAINER].partition("async def train(self)")[2]
    order = ['_fire("on_step_start")', "engine_client.sleep()", '_fire("on_step_end"', "save_checkpoints()"]
    places = [train.index(text) for text in order]
    assert places == sorted(places)
    assert {"get_trainer", "run"} <= code.methods(EXPERIMENT, "BasePPOExp")
    assert "get_trainer" in code.calls(EXPERIMENT, "BasePPOExp._setup_trainer")
    assert code.calls(EXPERIMENT, "BasePPOExp.run")[0] == "_setup_trainer"
    main = code.calls(EXPERIMENT, "main")
    assert {"from_cli_overrides", "validate_cfg", "initialize_ray"} <= set(main)
    calls = code.calls(ASYNC, "FullyAsyncRayPPOTrainer.train")
    after = calls[calls.index("_run_training") :]
    assert after.index("save_weights_for_sampler") < after.index("_profiler_step") < after.index("eval")
    assert "save_checkpoints" in code.methods(ASYNC, "FullyAsyncRayPPOTrainer")
    assert "save_models" in code.methods(TRAINER, "RayPPOTrainer")
