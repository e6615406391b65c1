"""Our trainers over the real methods of OpenRLHF's; what those call is a stub or a mock."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from slurm_interleave.client.integrations import openrlhf
from tests.frameworks.openrlhf_stubs import settings
from tests.frameworks.sources import source
from tests.frameworks.traces import Traced, traced

SYNC, ASYNC = "openrlhf/trainer/ppo_trainer.py", "openrlhf/trainer/ppo_trainer_async.py"


class Group:
    """Actors of a model: what they do needs the device."""

    def __init__(self, name: str, interleaver: Traced) -> None:
        self.name, self.interleaver = name, interleaver

    def async_run_method(self, method_name: str, **_: Any) -> list[Any]:
        self.interleaver.work(f"{self.name} {method_name}")
        return [{}]

    async_run_method_batch = async_run_method


def trainer_base(interleaver: Traced) -> type:
    """Return the real `BasePPOTrainer`, with what it computes and keeps as stubs."""
    names = {"ray": SimpleNamespace(get=lambda reference: reference), "time": MagicMock()}

    def engines(_engines: Any, call: str, **kwargs: Any) -> None:
        interleaver.work(" ".join(["engines", call, *kwargs.get("tags", [])]))

    names["batch_vllm_engine_call"] = engines
    real = source("openrlhf").built(SYNC, "BasePPOTrainer", object, **names, ABC=object, logger=MagicMock())

    class Base(real):  # type: ignore[misc, valid-type]
        def __init__(self, args: Any) -> None:
            self.args, self.vllm_engines, self.tokenizer, self.kl_ctl = args, [1], MagicMock(), MagicMock()
            self.actor_model_group, self.critic_model_group = Group("actor", interleaver), None
            maker = MagicMock()
            maker.make_experience_batch = lambda _: (interleaver.work("log-probs"), MagicMock())[1]
            self.experience_maker, self.wandb_logger, self.tensorboard_logger = maker, None, None
            self.best_eval_metric_key, self._latest_eval_metric_value = "", None
            self.best_eval_metric_value = 0.0

        def _compute_rollout_stats(self, experiences: Any) -> dict[str, float]:
            return {}

        def init_checkpoint_states(self) -> dict[str, Any]:
            return {"episode": 0, "global_step": 0, "total_consumed_prompts": 0, "data_loader_state_dict": {}}

    return Base


def training() -> SimpleNamespace:
    args = settings(engines=True)
    vars(args.train).update(dynamic_batch_enable=False, num_episodes=1, batch_size=2)
    vars(args.algo).update(dynamic_filtering_enable=False)
    vars(args.rollout).update(batch_size=2, n_samples_per_prompt=1)
    args.ckpt.save_steps, args.eval.steps = 2, float("inf")
    args.logger = SimpleNamespace(logging_steps=1)
    return args


STEP = ["log-probs", "actor append", "actor reload_states", "actor fit", "actor offload_states"]
SYNCED = ["engines wake_up weights", "actor broadcast_to_vllm"]


def test_the_boundary_lies_between_a_training_and_its_weight_sync() -> None:
    turns, interleaver = traced()
    real = source("openrlhf").built(
        SYNC, "PPOTrainer", trainer_base(interleaver), tqdm=MagicMock(), time=MagicMock(), logger=MagicMock()
    )
    trainer = openrlhf.sync_trainer(real, turns).__new__(openrlhf.sync_trainer(real, turns))
    trainer_base(interleaver).__init__(trainer, training())
    samples = iter([(["sample"], None, 1, False), (["sample"], None, 1, True)])
    trainer.samples_generator = SimpleNamespace(
        generate_samples=lambda: (interleaver.work("generate"), next(samples))[1]
    )
    trainer.prompts_dataloader, trainer.eval_dataloader, trainer.generate_kwargs = MagicMock(), None, {}

    with turns.session("init"):
        trainer.fit()

    boundary = ["yield", "acquire step"]
    step = ["generate", *STEP, *boundary, *SYNCED]
    assert interleaver.trace == ["acquire init", *step, *step, "actor save_checkpoint", "yield"]


def asynchronous(
    interleaver: Traced,
    turns: Any,
    monkeypatch: pytest.MonkeyPatch,
    payloads: list[Any],
    *,
    partial: bool = False,
) -> Any:
    lock = SimpleNamespace(
        acquire=SimpleNamespace(remote=lambda: interleaver.trace.append("wait for the generation")),
        release=SimpleNamespace(remote=lambda: interleaver.trace.append("unlock")),
    )

    def engines(_engines: Any, call: str) -> None:
        interleaver.work(f"engines {call}")

    ray = SimpleNamespace(get=lambda reference: reference)
    monkeypatch.setitem(sys.modules, "ray", ray)
    real = source("openrlhf").built(
        ASYNC,
        "TrainingActor",
        trainer_base(interleaver),
        ray=ray,
        time=MagicMock(),
        batch_vllm_engine_call=engines,
        logger=MagicMock(),
    )

    class Made(real):  # type: ignore[misc, valid-type]
        def __init__(self, args: Any, *, vllm_lock: Any) -> None:
            trainer_base(interleaver).__init__(self, args)
            self.vllm_lock, self._partial_rollout, self.rollout_slots = vllm_lock, partial, MagicMock()
            queue = iter([*payloads, "done"])
            self.rollout_queue = SimpleNamespace(
                get=lambda **_: (interleaver.trace.append("wait for samples"), next(queue))[1]
            )

    args = training()
    args.vllm.enable_sleep = False
    return openrlhf.async_trainer(Made, turns)(args, vllm_lock=lock)


def test_trainers_beside_a_generation_hold_to_train_sync_and_save_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns, interleaver = traced()
    samples = (["sample"], {}, None, 0.0)
    trainer = asynchronous(interleaver, turns, monkeypatch, [samples, samples])

    trainer.fit()

    turn = ["wait for samples", "acquire train", *STEP, "yield", "wait for the generation"]
    sync = ["acquire weight sync", SYNCED[1], "unlock"]
    saved = ["actor save_checkpoint", "yield"]
    assert interleaver.trace == [*turn, *sync, "yield", *turn, *sync, *saved, "wait for samples"]


def test_the_best_checkpoint_is_saved_in_a_turn_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, interleaver = traced()
    trainer = asynchronous(interleaver, turns, monkeypatch, [("eval", 1, {"eval_x_pass1": 1.0})])

    trainer.fit()

    saved = ["acquire save", "actor save_checkpoint", "yield"]
    assert interleaver.trace == ["wait for samples", *saved, "wait for samples"]
