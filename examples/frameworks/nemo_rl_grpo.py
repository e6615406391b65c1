"""GRPO with NeMo-RL, synchronous and colocated, in turns.

    sbatch --interleave-group=rl --gres=gpu:8 with_ray.sh python nemo_rl_grpo.py CONFIG [OVERRIDE ...]

What NeMo-RL's examples/run_grpo.py does in that case, and two lines more.
"""

from __future__ import annotations

import sys

from nemo_rl.algorithms.grpo import MasterConfig, grpo_train, setup, shutdown_environments
from nemo_rl.algorithms.utils import get_tokenizer
from nemo_rl.data.utils import setup_response_data
from nemo_rl.distributed.virtual_cluster import init_ray
from nemo_rl.models.generation import configure_generation_config
from nemo_rl.utils.config import load_config, parse_hydra_overrides, register_omegaconf_resolvers
from nemo_rl.utils.logger import get_next_experiment_dir
from omegaconf import OmegaConf

from slurm_interleave.client.integrations import nemo_rl as interleave


def main(path: str, *overrides: str) -> None:
    """Train as the configuration in *path* says."""
    turns = interleave.turns()  # before init_ray(), which deletes all SLURM_* variables
    register_omegaconf_resolvers()
    read = load_config(path)
    if overrides:
        read = parse_hydra_overrides(read, list(overrides))
    config = MasterConfig(**OmegaConf.to_container(read, resolve=True))
    config.logger["log_dir"] = get_next_experiment_dir(config.logger["log_dir"])
    init_ray()
    tokenizer = get_tokenizer(config.policy["tokenizer"])
    config.policy["generation"] = configure_generation_config(config.policy["generation"], tokenizer)
    dataset, val_dataset, envs, val_envs = setup_response_data(tokenizer, config.data, config.env)
    with turns.session("setup"):
        made = setup(config, tokenizer, dataset, val_dataset, policy_factory=interleave.policy_factory(turns))
        policy, generation, _, _, batches, val_batches, loss, logger, checkpointer, state, config, *_ = made
        try:
            with checkpointer:
                grpo_train(
                    policy,
                    generation,
                    batches,
                    val_batches,
                    tokenizer,
                    loss,
                    envs,
                    val_envs,
                    logger,
                    checkpointer,
                    state,
                    config,
                )
        finally:
            shutdown_environments(envs, val_envs)
            generation.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
