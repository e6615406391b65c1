#!/bin/sh
#SBATCH --job-name=skyrl
#SBATCH --gres=gpu:8
# GRPO with SkyRL; policy and engines have the same devices, and all are shared. In this folder:
#   for name in first second; do sbatch --interleave-group=skyrl skyrl.sh MODEL $name.parquet; done
set -eu
model=$1 data=$2
shift 2
exec sh with_ray.sh python -m slurm_interleave.client.integrations.skyrl \
    data.train_data="['$data']" \
    trainer.policy.model.path="$model" \
    trainer.algorithm.advantage_estimator=grpo \
    trainer.placement.colocate_all=true \
    trainer.placement.policy_num_gpus_per_node=8 \
    trainer.logger=console \
    generator.inference_engine.num_engines=8 \
    generator.inference_engine.backend=vllm \
    environment.env_class=gsm8k "$@"
