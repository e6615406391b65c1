"""Our script against OpenRLHF's own: on the same stubs it makes the same calls, and its trainers' turns."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from slurm_interleave.client.core.errors import BadArgument, WrongState
from slurm_interleave.client.integrations import openrlhf
from tests.frameworks.needs import needs
from tests.frameworks.openrlhf_stubs import (
    SCRIPT,
    SWITCHES,
    Handle,
    Recorder,
    Tell,
    Training,
    installed,
    script,
    settings,
    surface,
)
from tests.frameworks.sources import source
from tests.frameworks.traces import traced

SYNC, ASYNC = "openrlhf/trainer/ppo_trainer.py", "openrlhf/trainer/ppo_trainer_async.py"
GROUP = "openrlhf/trainer/ray/launcher.py"


class Told:
    """A trainer that says what it is asked."""

    def __init__(self, tell: Tell, *args: Any, **kwargs: Any) -> None:
        self._told = Recorder("trainer", tell)
        self._told.made(*args, **kwargs)

    def get_max_steps(self) -> int:
        self._told.get_max_steps()
        return 9

    def fit(self) -> None:
        self._told.fit()


def theirs(args: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    trace: list[str] = []

    def make(*given: Any, **kwargs: Any) -> Handle:
        return Handle(Told(trace.append, *given, **kwargs))

    modules = surface(trace.append, SimpleNamespace(remote=make))
    installed(monkeypatch, modules)
    names = {key: value for module in modules.values() for key, value in module.items()}
    source("openrlhf").executed(SCRIPT, "train", **names, ray=sys.modules["ray"])(args)
    return trace


def ours(args: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    turns, interleaver = traced()

    class Trainer(Told):
        def __init__(self, *given: Any, **kwargs: Any) -> None:
            super().__init__(interleaver.work, *given, **kwargs)

    installed(monkeypatch, surface(interleaver.trace.append, Trainer))
    openrlhf.train(args, turns)
    return interleaver.trace


def test_the_script_makes_the_calls_of_openrlhfs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()
    for values in itertools.product([False, True], repeat=len(SWITCHES)):
        changes = dict(zip(SWITCHES, values, strict=True))
        mine = ours(settings(**changes), monkeypatch)
        assert (mine[1], mine[-1]) == ("acquire init", "yield")
        assert [mine[0], *mine[2:-1]] == theirs(settings(**changes), monkeypatch), changes
        seen.add(tuple(mine))
    assert len(seen) > 60


def test_sizes_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    args = settings(colocate_all=True, engines=True)
    args.vllm.num_engines = 3
    with pytest.raises(BadArgument, match="2 devices of the actor and 3 of the engines"):
        ours(args, monkeypatch)

    args = settings(colocate_actor_ref=True, ref=True)
    args.ref.num_nodes = 2
    with pytest.raises(BadArgument, match="of one size"):
        ours(args, monkeypatch)


def overlapped(tell: Tell, args: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Install the surface of an asynchronous run; return what both kinds of drivers name of it."""
    queues = itertools.count()

    def queue(maxsize: int) -> Recorder:
        return Recorder(f"queue {next(queues)} of {maxsize}", tell)

    def generator(**given: Any) -> Recorder:
        tell(f"generator.made {[(key, str(value)) for key, value in sorted(given.items())]}")
        return Recorder("generator", tell)

    modules = surface(tell, None)
    names = {
        "TrainingActor": type("TrainingActor", (Training,), {"tell": staticmethod(tell)}),
        "GenerateSamplesActor": SimpleNamespace(remote=generator),
        "VLLMLock": SimpleNamespace(remote=lambda: Recorder("lock", tell)),
    }
    modules["openrlhf.trainer.ppo_trainer_async"] = names
    modules["ray.util.queue"] = {"Queue": queue}
    args.train.async_queue_size = 2
    installed(monkeypatch, modules)
    steps = sys.modules["ray"]
    monkeypatch.setattr(steps, "get", lambda got: 7 if got == ["<get_max_steps>"] else got)
    return {key: value for module in modules.values() for key, value in module.items()}


def test_an_asynchronous_run_makes_the_calls_of_openrlhfs_own_and_its_training_actor_has_the_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changes = {"async_enable": True, "engines": True, "critic": True, "reward": True}
    expected: list[str] = []
    args = settings(**changes)
    names = overlapped(expected.append, args, monkeypatch)
    names |= {"ray": sys.modules["ray"]}
    actor = {"TrainingActor": sys.modules["ray"].remote(names["TrainingActor"])}
    real = source("openrlhf").built(
        ASYNC, "PPOTrainerAsync", object, **{**names, **actor}, logger=MagicMock()
    )
    vars(sys.modules["openrlhf.trainer.ppo_trainer_async"])["PPOTrainerAsync"] = names["ray"].remote(real)
    source("openrlhf").executed(SCRIPT, "train", **names)(args)

    turns, interleaver = traced()
    args = settings(**changes)
    overlapped(interleaver.trace.append, args, monkeypatch)
    openrlhf.train(args, turns)

    trace = interleaver.trace
    assert [what for what in trace if what != "yield" and not what.startswith("acquire")] == expected
    at = trace.index("lock.acquire()")
    assert "yield" in trace[trace.index("generator.get_max_steps()") : at]
    assert trace[at : at + 3] == ["lock.acquire()", "acquire weight sync", "training.broadcast"]
    fits = trace.index("training.fit(4)")
    assert trace[fits - 1 : fits + 2] == ["yield", "training.fit(4)", "acquire save"]
    assert trace[-1] == "yield"


@needs("ray")
def test_ray_lets_us_inherit_from_the_class_of_an_actor() -> None:
    import ray

    @ray.remote
    class Theirs:
        def step(self) -> str:
            return "theirs"

    class Ours(openrlhf.plain(Theirs)):  # type: ignore[misc]
        def step(self) -> str:
            return f"{super().step()} and ours"

    assert Ours().step() == "theirs and ours"
    assert hasattr(ray.remote(Ours), "remote")


def test_the_options_are_parsed_by_openrlhfs_own_script(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = script(monkeypatch, tmp_path)
    options = "--actor.model_name_or_path m --reward.model_name_or_path judge --vllm.num_engines 2"
    monkeypatch.setattr(sys, "argv", ["train", *options.split(), "--actor.num_gpus_per_node", "2"])

    args = openrlhf.options()

    assert (args.actor.num_gpus_per_node, args.vllm.num_engines) == (2, 2)
    assert args.critic.model_name_or_path == "judge"  # GAE's, which the script itself fills in

    path.write_text("if True:\n    main()\n")
    with pytest.raises(WrongState, match=r"does not end with train\(args\)"):
        openrlhf.options()


def test_openrlhf_has_what_we_override_and_calls_it_where_we_think() -> None:
    code = source("openrlhf")
    step = code.calls(SYNC, "BasePPOTrainer.train_step")
    assert step.index("ppo_train") < step.index("broadcast_to_vllm")
    assert code.parameters(SYNC, "BasePPOTrainer.ppo_train") == ["self", "global_steps"]
    fit = code.calls(ASYNC, "TrainingActor.fit")
    assert fit.index("get") < fit.index("train_step") < fit.index("save_logs_and_checkpoints")
    assert "save_best_checkpoint" in fit
    assert code.parameters(ASYNC, "TrainingActor.__init__")[-3:] == [
        "vllm_lock",
        "rollout_queue",
        "rollout_slots",
    ]
    made = code.calls(ASYNC, "PPOTrainerAsync.__init__")
    assert made.count("remote") == 3
    assert {"async_init_model_from_pretrained", "async_save_model"} <= code.methods(GROUP, "RayActorGroup")
