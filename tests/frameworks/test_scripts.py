"""The examples for frameworks that need GPUs: what they say is what the releases know."""

from __future__ import annotations

import ast
import json
import os
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import pytest
import yaml

from slurm_interleave.client.integrations import nemo_rl, openrlhf
from slurm_interleave.client.integrations import slime as our_slime
from tests.frameworks.openrlhf_stubs import script
from tests.frameworks.sources import source
from tests.frameworks.traces import traced

FOLDER = Path(__file__).parents[2] / "examples" / "frameworks"
PYTHON = f"""#!{sys.executable}
import json, os, sys
wanted = ("VERL_USE_EXTERNAL_MODULES", "RAY_ADDRESS", "NCCL_NVLS_ENABLE", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC")
print(json.dumps([sys.argv[1:], {{name: os.environ.get(name) for name in wanted}}]))
"""


def run(folder: Path, name: str, *arguments: str) -> tuple[str, list[str], dict[str, str | None]]:
    """Run the script with stand-ins; return the module that it starts, its options and its environment."""
    programs = folder / "bin"
    programs.mkdir()
    for program, text in {"python": PYTHON, "ray": "#!/bin/sh\nexec sleep 60\n"}.items():
        (programs / program).write_text(text)
        (programs / program).chmod(0o755)
    env = {**os.environ, "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["sh", name, *arguments]
    done = subprocess.run(command, cwd=FOLDER, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (dash_m, module, *options), environment = json.loads(done.stdout)
    assert dash_m == "-m"
    assert environment["RAY_ADDRESS"]
    assert (environment["NCCL_NVLS_ENABLE"], environment["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"]) == (
        "0",
        "86400",
    )
    return module, options, environment


def settings(options: list[str]) -> dict[str, str]:
    return dict(word.partition("=")[::2] for word in options)


def test_verl_knows_the_settings_and_finds_our_trainers(tmp_path: Path) -> None:
    known = yaml.safe_load(source("verl").files["verl/trainer/config/_generated_ppo_trainer.yaml"])

    module, options, environment = run(tmp_path, "verl.sh", "a/model", "data.parquet", "trainer.nnodes=2")

    assert environment["VERL_USE_EXTERNAL_MODULES"] == "slurm_interleave.client.integrations.verl_plugin"
    assert f"{module.replace('.', '/')}.py" in source("verl").files
    for name in settings(options):
        at: Any = known
        for part in name.split("."):
            assert part in at, name
            at = at[part]
    assert settings(options)["actor_rollout_ref.model.path"] == "a/model"


def test_slime_knows_the_options(tmp_path: Path) -> None:
    text = source("slime").files["slime/utils/arguments.py"]
    known = {node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)}

    module, options, _ = run(tmp_path, "slime.sh", "a/model", "data.jsonl")

    assert module == our_slime.__name__
    names = [word for word in options if word.startswith("--")]
    assert [name for name in names if name not in known] == []
    assert "a/model_torch_dist" in options


def test_skyrl_knows_the_settings(tmp_path: Path) -> None:
    tree = source("skyrl").module("skyrl/train/config/config.py")
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}

    module, options, _ = run(tmp_path, "skyrl.sh", "a/model", "data.parquet")

    assert module == "slurm_interleave.client.integrations.skyrl"
    for name in settings(options):
        kind = "SkyRLTrainConfig"
        for part in name.split("."):
            fields = {
                ast.unparse(s.target): ast.unparse(s.annotation)
                for s in classes[kind].body
                if isinstance(s, ast.AnnAssign)
            }
            assert part in fields, f"{name}: {kind} has no {part}"
            kind = fields[part]


def test_openrlhf_takes_the_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, options, _ = run(
        tmp_path, "openrlhf.sh", "a/model", "data.jsonl", "reward.py", "--ds.zero_stage", "3"
    )
    script(monkeypatch, tmp_path)
    monkeypatch.setattr(sys, "argv", [module, *options])

    args = openrlhf.options()

    assert module == openrlhf.__name__
    assert (args.train.colocate_all, args.vllm.enable_sleep, args.ds.enable_sleep) == (True, True, True)
    assert (args.actor.model_name_or_path, args.critic.model_name_or_path) == ("a/model", None)
    assert (args.reward.remote_url, args.ds.zero_stage) == (["reward.py"], 3)


MODULES = {
    "nemo_rl/algorithms/grpo.py": ["setup", "grpo_train", "shutdown_environments"],
    "nemo_rl/algorithms/utils.py": ["get_tokenizer"],
    "nemo_rl/data/utils.py": ["setup_response_data"],
    "nemo_rl/distributed/virtual_cluster.py": ["init_ray"],
    "nemo_rl/models/generation/__init__.py": ["configure_generation_config"],
    "nemo_rl/utils/config.py": ["load_config", "parse_hydra_overrides", "register_omegaconf_resolvers"],
    "nemo_rl/utils/logger.py": ["get_next_experiment_dir"],
}


def signature(path: str, name: str, does: Any) -> Any:
    """Return *does* behind the parameters of the real function."""
    function = source("nemo-rl").function(path, name)
    function.decorator_list, function.returns = [], None
    for argument in (*function.args.args, *function.args.kwonlyargs):
        argument.annotation = None
    function.body = ast.parse("return does(locals())").body
    space: dict[str, Any] = {"does": does}
    module = ast.fix_missing_locations(ast.Module([function], []))
    exec(compile(module, path, "exec"), space)  # noqa: S102 - the release under test
    return space[name]


def stand_in(monkeypatch: pytest.MonkeyPatch, stub: Callable[[str], Any]) -> None:
    """Put the modules of NeMo RL in their place, with *stub*s under the signatures of the release."""
    for path, names in MODULES.items():
        name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        module = ModuleType(name)
        vars(module).update(
            {each: signature(path, each, stub(each)) for each in names}, MasterConfig=MagicMock()
        )
        for parent in [name.rsplit(".", n)[0] for n in range(1, name.count(".") + 1)]:
            if parent not in sys.modules:
                monkeypatch.setitem(sys.modules, parent, ModuleType(parent))
        monkeypatch.setitem(sys.modules, name, module)


def test_the_launcher_for_nemo_rl_calls_what_it_has_and_holds_while_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns, interleaver = traced()
    monkeypatch.setattr(nemo_rl, "turns", lambda: turns)
    given: dict[str, dict[str, Any]] = {}
    made = [MagicMock(name=f"made {number}") for number in range(13)]
    on_device = {"setup": made, "grpo_train": None}

    def stub(name: str) -> Any:
        def does(named: dict[str, Any]) -> Any:
            given[name] = named
            if name in on_device:
                interleaver.work(name)
            answers = {"setup": made, "setup_response_data": ("data", "val", "envs", "val envs")}
            return answers.get(name, MagicMock(name=name))

        return does

    stand_in(monkeypatch, stub)
    monkeypatch.setitem(sys.modules, "omegaconf", MagicMock())
    monkeypatch.setattr(sys, "argv", shlex.split("nemo_rl_grpo.py config.yaml grpo.max_num_steps=3"))

    runpy.run_path(str(FOLDER / "nemo_rl_grpo.py"), run_name="__main__")

    assert interleaver.trace == ["acquire setup", "setup", "grpo_train", "yield"]
    order = source("nemo-rl").parameters("nemo_rl/algorithms/grpo.py", "grpo_train")
    assert [given["grpo_train"][name] for name in order[:2]] == made[:2]
    assert given["grpo_train"]["wrapped_dataloader"] is made[4]
    assert given["grpo_train"]["task_to_env"] == "envs"
    assert given["grpo_train"]["master_config"] is made[10]
    assert given["parse_hydra_overrides"]["overrides"] == ["grpo.max_num_steps=3"]
