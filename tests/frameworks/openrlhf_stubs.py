"""What OpenRLHF's scripts use of OpenRLHF and of Ray, without devices or processes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.frameworks.sources import source

SCRIPT = "openrlhf/cli/train_ppo_ray.py"
MODELS = ("critic", "ref", "reward", "engines")
SWITCHES = ("colocate_all", "colocate_actor_ref", "colocate_critic_reward", *MODELS)
Tell = Callable[[str], None]


def nested(value: Any) -> Any:
    if isinstance(value, dict):
        return SimpleNamespace(**{key: nested(one) for key, one in value.items()})
    return value


def settings(**changes: bool) -> SimpleNamespace:
    """Return what OpenRLHF's options would be, as far as the scripts look."""
    on = {name: changes.get(name, False) for name in (*SWITCHES, "async_enable")}
    size = {"num_nodes": 1, "num_gpus_per_node": 2}
    name = "critic-model" if on["critic"] else None
    settings = {
        "actor": {**size, "model_name_or_path": "model"},
        "ref": size,
        "critic": {**size, "model_name_or_path": name, "save_value_network": True, "freezing_steps": -1},
        "reward": {**size, "model_name_or_path": "judge", "remote_url": None if on["reward"] else ["http"]},
        "vllm": {"num_engines": 2 * on["engines"], "tensor_parallel_size": 1, "enable_sleep": True},
        "train": {"seed": 1, "full_determinism_enable": False, "agent_func_path": None},
        "algo": {"kl": {"init_coef": 0.1 * on["ref"]}, "advantage": {"is_correction_level": "off"}},
        "data": {"max_len": 64, "max_images_per_prompt": 0},
        "rollout": {"max_new_tokens": 8, "temperature": 1.0, "top_p": 1.0},
        "ds": {"ring_attn_size": 1, "tensor_parallel_size": 2, "enable_sleep": True},
        "eval": {"steps": -1},
        "ckpt": {"save_steps": -1},
    }
    settings["vllm"] |= {"enable_prefix_caching": 0, "enforce_eager": 0, "gpu_memory_utilization": 0.5}
    settings["train"] |= {key: value for key, value in on.items() if key.startswith(("colocate", "async"))}
    made: SimpleNamespace = nested(settings)
    return made


class Recorder:
    """An object whose methods, remote or not, are written down with what they are given."""

    def __init__(self, name: str, tell: Tell) -> None:
        self._name, self._tell = name, tell

    def __getattr__(self, method: str) -> Any:
        if method.startswith("__"):
            raise AttributeError(method)

        def call(*args: Any, **kwargs: Any) -> list[str]:
            more = [*map(str, args), *(f"{key}={value}" for key, value in kwargs.items())]
            self._tell(f"{self._name}.{method}({', '.join(more)})")
            return [f"<{method}>"]

        call.remote = call  # type: ignore[attr-defined]
        return call

    def __str__(self) -> str:
        return self._name

    def __deepcopy__(self, memo: Any) -> Recorder:
        return self


class Ray(ModuleType):
    """Ray without processes: an actor is the object, and a reference is what it leads to."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.is_initialized = lambda: True

    def get(self, reference: Any) -> Any:
        return reference

    def remote(self, kind: type) -> Any:
        return SimpleNamespace(remote=lambda *args, **kwargs: Handle(kind(*args, **kwargs)))


class Handle:
    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def __getattr__(self, method: str) -> Any:
        return SimpleNamespace(remote=getattr(self._actor, method))


def surface(tell: Tell, trainer: Any) -> dict[str, dict[str, Any]]:
    """Return what both scripts use of OpenRLHF and Ray, by module."""
    strategy = Recorder("strategy", tell)

    def made(name: str) -> Callable[..., Recorder]:
        def make(*args: Any, **kwargs: Any) -> Recorder:
            getattr(Recorder(name, tell), "made")(*args, **kwargs)  # noqa: B009
            return Recorder(f"{name} {args[2]}" if name == "group" else name, tell)

        return make

    def strategy_of(args: Any) -> Recorder:
        strategy.args = args
        return strategy

    return {
        "ray": {"placement_group": made("pg")},
        "ray.util.placement_group": {"placement_group": made("pg")},
        "openrlhf.trainer.ray": {"create_vllm_engines": made("engines")},
        "openrlhf.trainer.ray.launcher": {
            "RayActorGroup": made("group"),
            "ReferenceModelActor": "ref",
            "RewardModelActor": "reward",
        },
        "openrlhf.trainer.ray.ppo_actor": {"PolicyModelActor": "actor"},
        "openrlhf.trainer.ray.ppo_critic": {"CriticModelActor": "critic"},
        "openrlhf.trainer.ppo_trainer": {"PPOTrainer": trainer},
        "openrlhf.utils": {"get_strategy": strategy_of},
    }


def installed(monkeypatch: pytest.MonkeyPatch, modules: dict[str, dict[str, Any]]) -> None:
    ray = Ray()
    for path, names in modules.items():
        parents = [path.rsplit(".", n)[0] for n in range(path.count("."), -1, -1)]
        for name in parents:
            if name not in sys.modules or not hasattr(sys.modules[name], "stub"):
                module = ray if name == "ray" else ModuleType(name)
                module.stub = module.__path__ = []  # type: ignore[attr-defined]
                monkeypatch.setitem(sys.modules, name, module)
            parent, _, last = name.rpartition(".")
            if parent:
                setattr(sys.modules[parent], last, sys.modules[name])
        vars(sys.modules[path]).update(names)


def script(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """Make OpenRLHF's own script importable, from *folder*; return its path."""
    modules = surface(lambda _: None, None)
    real = {"openrlhf.utils.config": "openrlhf/utils/config.py", "openrlhf.cli.train_ppo_ray": SCRIPT}
    installed(monkeypatch, {**modules, **{name: {} for name in real}})
    for name, path in real.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source("openrlhf").files[path])
        vars(sys.modules[name])["__file__"] = str(file)
        exec(source("openrlhf").files[path], vars(sys.modules[name]))  # noqa: S102 - the release under test
    return folder / SCRIPT


class Training:
    """OpenRLHF's training actor, told apart by what it is made with; its weight sync takes the lock."""

    tell: Tell

    def __init__(
        self,
        pretrain: Any,
        strategy: Any,
        actor_model_group: Any,
        critic_model_group: Any,
        reward_model_group: Any,
        reference_model_group: Any,
        vllm_engines: Any,
        *,
        vllm_lock: Any,
        rollout_queue: Any,
        rollout_slots: Any,
    ) -> None:
        groups = (actor_model_group, critic_model_group, reward_model_group, reference_model_group)
        self.tell(f"training.made {pretrain} {strategy} {[*map(str, groups)]} {vllm_engines} {rollout_slots}")
        self.lock = vllm_lock

    def init_checkpoint_states(self) -> dict[str, Any]:
        return {"global_step": 4, "episode": 1, "total_consumed_prompts": 8, "data_loader_state_dict": {}}

    def restore_best_checkpoint_state(self, states: dict[str, Any]) -> None:
        self.tell(f"training.restore {states}")

    def broadcast_to_vllm(self) -> None:
        self.lock.acquire.remote()
        self.tell("training.broadcast")

    def fit(self, global_step: int) -> None:
        self.tell(f"training.fit({global_step})")
