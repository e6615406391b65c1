"""Our driver against slime's own two: on the same stubs it makes the same calls, and its turns."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.client.integrations import slime
from slurm_interleave.client.integrations.slime_phases import PhaseCallback
from tests.frameworks.sources import source
from tests.frameworks.traces import traced

CREATE, GROUP, ENGINES = "slime/ray/placement_group.py", "slime/ray/actor_group.py", "slime/ray/rollout.py"
DEFAULTS = {
    "release_train": False,
    "offload_train": False,
    "offload_rollout": False,
    "check_weight_update_equal": False,
    "num_rollout": 3,
    "start_rollout_id": 0,
    "eval_interval": None,
    "skip_eval_before_train": False,
    "use_critic": False,
    "num_critic_only_steps": 0,
    "save_interval": 2,
    "rollout_global_dataset": True,
    "update_weights_interval": 2,
    "colocate": False,
}


class Recorder:
    """An object whose methods, remote or not, are written down; `told` says what to tell beside."""

    def __init__(self, name: str, tell: Callable[[str], None]) -> None:
        self._name, self._tell = name, tell

    def __getattr__(self, method: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> str:
            more = [*map(str, args), *(f"{name}={value}" for name, value in kwargs.items())]
            self._tell(f"{self._name}.{method}({', '.join(more)})")
            return f"<{method}>"

        call.remote = call  # type: ignore[attr-defined]
        return call


def due(step: int, interval: int | None, per_epoch: int | None = None, total: int | None = None) -> bool:
    """Slime's own, by its documentation."""
    if interval is None:
        return False
    return (step + 1) % interval == 0 or (total is not None and step == total - 1)


def surface(args: SimpleNamespace, tell: Callable[[str], None]) -> dict[str, Any]:
    """Return what both kinds of drivers use of slime and Ray."""
    critic = Recorder("critic", tell) if args.use_critic else None
    return {
        "ray": SimpleNamespace(get=lambda reference: reference),
        "configure_logger": lambda: None,
        "init_tracking": lambda _: tell("init_tracking"),
        "finish_tracking": lambda _: tell("finish_tracking"),
        "create_placement_groups": lambda _: {"rollout": "pg"},
        "create_rollout_manager": lambda *_: (Recorder("engines", tell), 7),
        "create_training_models": lambda *_: (Recorder("actor", tell), critic),
        "should_run_periodic_action": due,
    }


def theirs(args: SimpleNamespace, file: str) -> list[str]:
    trace: list[str] = []
    source("slime").executed(file, "train", **surface(args, trace.append))(args)
    return trace


def ours(args: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, *, overlapped: bool = False) -> list[str]:
    turns, interleaver = traced()
    names = surface(args, interleaver.trace.append)
    modules = {
        "ray": ["get"],
        "slime.observability.logging_utils": ["configure_logger", "init_tracking", "finish_tracking"],
        "slime.ray.placement_group": [name for name in names if name.startswith("create")],
        "slime.utils.misc": ["should_run_periodic_action"],
    }
    for path, wanted in modules.items():
        module = ModuleType(path)
        for name in wanted:
            setattr(module, name, names["ray"].get if name == "get" else names[name])
        for length in range(path.count(".")):
            parent = path.rsplit(".", length + 1)[0]
            monkeypatch.setitem(sys.modules, parent, ModuleType(parent))
        monkeypatch.setitem(sys.modules, path, module)
    slime.train(args, turns, overlapped=overlapped)
    return interleaver.trace


def without_turns(trace: list[str]) -> list[str]:
    return [what for what in trace if what != "yield" and not what.startswith("acquire")]


def settings(**changes: Any) -> SimpleNamespace:
    return SimpleNamespace(**{**DEFAULTS, **changes})


SWITCHES = ["release_train", "offload_train", "offload_rollout", "check_weight_update_equal", "use_critic"]
CHANGES = [
    {**dict(zip(SWITCHES, values, strict=True)), "eval_interval": interval, "num_critic_only_steps": 1}
    for values in itertools.product([False, True], repeat=len(SWITCHES))
    for interval in (None, 1)
]


@pytest.mark.parametrize("colocate", [False, True])
def test_the_synchronous_driver_makes_the_calls_of_slimes_own(
    colocate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for changes in CHANGES:
        args = settings(**changes, colocate=colocate)
        assert without_turns(ours(args, monkeypatch)) == theirs(args, "train.py"), changes


def test_the_overlapped_driver_makes_the_calls_of_slimes_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for changes in CHANGES:
        args = settings(**changes)
        args.offload_rollout = False  # its own driver has none
        mine = without_turns(ours(args, monkeypatch, overlapped=True))
        assert mine == theirs(args, "train_async.py"), changes


def test_colocated_all_is_held_but_one_boundary_a_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    args = settings(
        colocate=True, offload_rollout=True, offload_train=True, num_rollout=2, save_interval=None
    )

    trace = ours(args, monkeypatch)

    at = [index for index, what in enumerate(trace) if what == "yield"]
    assert len(at) == 3
    for index in at[:2]:
        assert trace[index - 1].startswith("actor.async_train")
        assert trace[index + 1] == "acquire step"
        assert trace[index + 2] == "engines.onload_weights()"


@pytest.mark.parametrize("overlapped", [False, True])
def test_apart_the_trainers_devices_are_held_to_train_save_and_sync_alone(
    overlapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = ours(settings(eval_interval=1), monkeypatch, overlapped=overlapped)

    held = False
    for what in trace:
        held = (held or what.startswith("acquire")) and what != "yield"
        if what.startswith("actor."):
            assert held, what
        if what.startswith(("engines.generate", "engines.eval")) and not overlapped:
            assert not held, what
    assert trace.count("yield") >= 4


def test_overlapped_and_colocated_is_refused() -> None:
    turns, _ = traced()
    with pytest.raises((BadArgument, ImportError)):
        slime.train(settings(colocate=True), turns, overlapped=True)


def phases(role: str, *events: tuple[str, str]) -> list[str]:
    turns, interleaver = traced()
    callback = PhaseCallback(turns, role)
    for phase, of in events:
        callback.on_phase_begin(phase, of)
        interleaver.trace.append(phase)
        callback.on_phase_end(phase, of, {})
    callback.close()
    return interleaver.trace


def test_phases_of_the_other_role_are_the_partners_turn() -> None:
    events = [("init", "both"), ("generate", "sampler"), ("onload", "trainer"), ("train", "trainer")]
    events += [("weight_sync", "both"), ("generate", "sampler")]

    trainer, sampler = phases("trainer", *events), phases("sampler", *events)

    held = ["acquire onload", "onload", "train", "weight_sync", "yield", "generate"]
    assert trainer == ["acquire init", "init", "yield", "generate", *held]
    apart = ["yield", "onload", "train", "acquire weight_sync", "weight_sync", "generate", "yield"]
    assert sampler == ["acquire init", "init", "generate", *apart]


def test_without_a_role_the_boundary_is_the_end_of_training() -> None:
    trace = phases("", ("generate", "sampler"), ("train", "trainer"), ("weight_sync", "both"))

    assert trace == [
        "acquire generate",
        "generate",
        "train",
        "yield",
        "acquire train",
        "weight_sync",
        "yield",
    ]


def test_slime_has_the_public_functions_that_we_call() -> None:
    code = source("slime")
    assert code.parameters(CREATE, "create_placement_groups") == ["args"]
    assert code.parameters(CREATE, "create_rollout_manager") == ["args", "pg"]
    assert code.parameters(CREATE, "create_training_models")[:3] == ["args", "pgs", "rollout_manager"]
    assert code.parameters(GROUP, "RayTrainGroup.async_train")[1:] == [
        "rollout_id",
        "rollout_data_ref",
        "external_data",
    ]
    assert {"save_model", "update_weights", "create", "clear_memory"} <= code.methods(GROUP, "RayTrainGroup")
    remote = {
        "generate",
        "eval",
        "offload",
        "onload_weights",
        "onload_kv",
        "save",
        "dispose",
        "check_weights",
    }
    assert remote <= code.methods(ENGINES, "RolloutManager")
