#!/bin/sh
#SBATCH --job-name=verl
#SBATCH --gres=gpu:8
# GRPO with verl; all devices are shared. In this folder, with two models or two sets of data:
#   for name in first second; do sbatch --interleave-group=verl verl.sh MODEL $name.parquet; done
set -eu
model=$1 data=$2
shift 2
export VERL_USE_EXTERNAL_MODULES=slurm_interleave.client.integrations.verl_plugin
exec sh with_ray.sh python -m verl.trainer.main_ppo \
    trainer.v1.trainer_mode=interleave_sync \
    trainer.n_gpus_per_node=8 \
    algorithm.adv_estimator=grpo \
    data.train_files="$data" \
    data.val_files="$data" \
    actor_rollout_ref.model.path="$model" \
    actor_rollout_ref.actor.fsdp_config.param_offload=True \
    actor_rollout_ref.actor.fsdp_config.optimizer_offload=True \
    actor_rollout_ref.rollout.name=vllm \
    actor_rollout_ref.rollout.n=8 "$@"
