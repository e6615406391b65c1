"""Our trainers over the real `fit`, `step` and hooks of verl; what those call is a stub or a mock."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.client.integrations import verl
from tests.frameworks.sources import source
from tests.frameworks.traces import Traced, traced

V1 = "verl/trainer/ppo/v1"
STEPS = 2


class Config(dict[str, Any]):
    """As OmegaConf's: by attribute too."""

    def __getattr__(self, name: str) -> Any:
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


def config(mode: str, **rollout: Any) -> Config:
    v1 = Config(trainer_mode=mode)
    trainer = {"v1": v1, "total_epochs": 9, "save_freq": 2, "test_freq": 2, "critic_warmup": 0}
    engine = Config(backend="nccl", engine_kwargs={"nccl": {"rebuild_group": True}})
    return Config(
        trainer=Config(trainer, val_before_train=False, project_name="p", experiment_name="e", logger=[]),
        actor_rollout_ref=Config(rollout=Config(temperature=1, checkpoint_engine=engine), **rollout),
        data=Config(train_batch_size=4),
        global_profiler=Config(steps=None),
    )


def base_class(interleaver: Traced, file: str, name: str, **stubs: Any) -> type:
    """Return the trainer *name*: real methods of the loop, and stubs that work on the device or do not."""
    names = {"marked_timer": lambda *_, **__: nullcontext(), "tqdm": MagicMock(), "pprint": lambda _: None}
    real = source("verl").built(f"{V1}/trainer_base.py", "PPOTrainer", object, **names, ABC=object)
    keep = {"fit", "step", "_step_once"} | {n for n in vars(real) if n.startswith("on_")} | {"init"}
    loop = type("PPOTrainer", (Stubs,), {name: vars(real)[name] for name in keep})
    leaf = source("verl").built(f"{V1}/{file}", name, loop, **names)
    kept = {name: value for name, value in vars(leaf).items() if name.startswith("on_")}
    return type(name, (loop,), {**kept, **stubs, "interleaver": interleaver})


class Stubs:
    """What the loop uses, as far as it matters where."""

    interleaver: Traced

    def __init__(self, config: Config) -> None:
        self.config, self.trainer_mode = config, config.trainer.v1.trainer_mode
        self.checkpoint_manager = self.standalone_checkpoint_manager = SimpleNamespace(
            update_weights=lambda _step: self.interleaver.work("update_weights"),
            sleep_replicas=lambda: self.interleaver.work("sleep"),
        )
        self.replay_buffer = SimpleNamespace(sample=self._sample)
        self.global_steps, self.steps_per_epoch, self.total_training_steps = 0, 9, STEPS
        self.parameter_sync_step, self.use_reference_policy, self.use_critic = 1, False, False
        self.reward_loop_manager, self.logger = MagicMock(), MagicMock()

    def _sample(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        self.interleaver.trace.append("sample")
        return MagicMock(tags=[], keys=[]), {}

    def prepare_step(self) -> dict[str, Any]:
        return {}

    def _setup(self) -> None:
        self.interleaver.work("setup")

    def _update_actor(self, batch: Any, metrics: Any) -> Any:
        self.interleaver.work("update_actor")
        return batch

    def _compute_old_log_prob(self, batch: Any, metrics: Any) -> Any:
        self.interleaver.work("old_log_prob")
        return batch

    def _compute_advantage(self, batch: Any, metrics: Any) -> Any:
        return batch

    def _balance_batch(self, batch: Any, metrics: Any) -> Any:
        return batch

    def _save_checkpoint(self) -> None:
        self.interleaver.work("save")

    def _validate(self) -> dict[str, float]:
        self.interleaver.trace.append("validate")
        return {"reward": 1.0}

    def __getattr__(self, name: str) -> Any:
        return MagicMock(name=name)


def test_the_synchronous_trainer_holds_all_but_one_boundary_a_step() -> None:
    turns, interleaver = traced()
    base = base_class(interleaver, "trainer_sync.py", "PPOTrainerSync", curr_step_profile=False)
    trainer = verl.sync_trainer(base, turns)(config(verl.SYNC))

    trainer.init()
    trainer.fit(MagicMock())

    step = ["sample", "sleep", "old_log_prob", "update_actor"]
    boundary = ["yield", "acquire step", "update_weights"]
    start = ["acquire init", "setup", "update_weights"]
    assert interleaver.trace == [*start, *step, *boundary, *step, "save", *boundary, "validate", "yield"]
    assert trainer.trainer_mode == "sync"


def nothing(self: Stubs) -> None:
    pass


def test_the_asynchronous_trainer_holds_from_the_samples_to_the_weight_sync() -> None:
    turns, interleaver = traced()
    base = base_class(interleaver, "trainer_separate_async.py", "PPOTrainerSeparateAsync")
    for name, value in {
        "on_init_end": Stubs._setup,
        "on_train_begin": nothing,
        "on_step_begin": nothing,
    }.items():
        setattr(base, name, value)
    # The weight sync as the real one does it, without the switching that a hybrid engine needs.
    base.on_step_end = lambda self: self.standalone_checkpoint_manager.update_weights(1)  # type: ignore[attr-defined]
    base.on_sample_begin = base.on_sample_end = nothing  # type: ignore[attr-defined]
    trainer = verl.async_trainer(base, turns)(config(verl.ASYNC, hybrid_engine=False))

    trainer.init()
    trainer.fit(MagicMock())

    step = ["sample", "acquire train", "old_log_prob", "update_actor"]
    sync = ["update_weights", "yield"]
    start = ["acquire init", "setup", "setup", "yield"]
    assert interleaver.trace == [*start, *step, *sync, *step, "save", *sync, "validate"]
    assert trainer.trainer_mode == "separate_async"


def test_a_fit_that_fails_yields() -> None:
    turns, interleaver = traced()

    def fails(self: Stubs, batch: Any, metrics: Any) -> Any:
        raise RuntimeError("out of memory")

    stubs = {"curr_step_profile": False, "_update_actor": fails}
    base = base_class(interleaver, "trainer_sync.py", "PPOTrainerSync", **stubs)
    trainer = verl.sync_trainer(base, turns)(config(verl.SYNC))
    trainer.init()

    with pytest.raises(RuntimeError, match="out of memory"):
        trainer.fit(MagicMock())

    assert interleaver.trace[-1] == "yield"


def test_a_hybrid_engine_is_refused_where_the_trainers_devices_are_shared() -> None:
    turns, _ = traced()

    with pytest.raises(BadArgument, match="hybrid_engine is not False"):
        verl.async_trainer(Stubs, turns)(config(verl.ASYNC))


def test_a_communicator_over_both_pools_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    turns, interleaver = traced()
    settings = config(verl.ASYNC, hybrid_engine=False)
    settings.actor_rollout_ref.rollout.checkpoint_engine.engine_kwargs = None
    stubs = type("PPOTrainerSeparateAsync", (Stubs,), {"interleaver": interleaver})

    verl.async_trainer(stubs, turns)(settings)

    assert "rebuild_group is not true" in capsys.readouterr().err


def test_verl_has_the_hooks_that_we_override_and_calls_them_where_we_think() -> None:
    code = source("verl")
    for name in ("on_sample_begin", "on_sample_end", "on_step_end", "init"):
        assert code.parameters(f"{V1}/trainer_base.py", f"PPOTrainer.{name}") == ["self"]
    assert code.parameters(f"{V1}/trainer_base.py", "register_trainer") == ["name"]
    separate = code.methods(f"{V1}/trainer_separate_async.py", "PPOTrainerSeparateAsync")
    assert {"on_sample_begin", "on_sample_end", "on_step_end"} <= separate
    assert "update_weights" in code.calls(
        f"{V1}/trainer_separate_async.py", "PPOTrainerSeparateAsync.on_step_end"
    )
    exported = code.files[f"{V1}/__init__.py"]
    assert all(name in exported for name in ("PPOTrainerSync", "PPOTrainerSeparateAsync", "register_trainer"))
    assert "VERL_USE_EXTERNAL_MODULES" in code.files["verl/__init__.py"]
    runs = code.calls("verl/trainer/main_ppo.py", "TaskRunnerV1.run")
    assert runs.index("get_trainer_cls") < runs.index("init") < runs.index("fit")
