#!/bin/sh
#SBATCH --job-name=openrlhf
#SBATCH --gres=gpu:8
# GRPO with OpenRLHF; actor and engines have the same devices, and all are shared. In this folder:
#   for name in first second; do sbatch --interleave-group=openrlhf openrlhf.sh MODEL $name.jsonl reward.py; done
set -eu
model=$1 data=$2 reward=$3
shift 3
exec sh with_ray.sh python -m slurm_interleave.client.integrations.openrlhf \
    --train.colocate_all \
    --vllm.enable_sleep \
    --ds.enable_sleep \
    --actor.num_gpus_per_node 8 \
    --actor.model_name_or_path "$model" \
    --vllm.num_engines 8 \
    --vllm.gpu_memory_utilization 0.6 \
    --data.prompt_dataset "$data" \
    --reward.remote_url "$reward" \
    --algo.advantage.estimator group_norm \
    --algo.kl.init_coef 0 \
    --rollout.n_samples_per_prompt 8 "$@"
