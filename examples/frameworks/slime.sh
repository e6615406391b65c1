#!/bin/sh
#SBATCH --job-name=slime
#SBATCH --gres=gpu:8
# GRPO with slime; trainer and engines have the same devices, and all are shared. In this folder, with the model's own
# options for Megatron after its folder, as they stand in slime's scripts/models:
#   for name in first second; do sbatch --interleave-group=slime slime.sh MODEL $name.jsonl --num-layers 24 ...; done
# Without --colocate, or with --interleave-async too, only the trainer's devices are shared.
set -eu
model=$1 data=$2
shift 2
exec sh with_ray.sh python -m slurm_interleave.client.integrations.slime \
    --colocate \
    --actor-num-nodes 1 \
    --actor-num-gpus-per-node 8 \
    --rollout-num-gpus-per-engine 1 \
    --hf-checkpoint "$model" \
    --ref-load "${model}_torch_dist" \
    --prompt-data "$data" \
    --input-key prompt \
    --label-key label \
    --apply-chat-template \
    --rm-type deepscaler \
    --num-rollout 100 \
    --rollout-batch-size 32 \
    --n-samples-per-prompt 8 \
    --rollout-max-response-len 4096 \
    --advantage-estimator grpo \
    --use-dynamic-batch-size \
    --max-tokens-per-gpu 4096 "$@"
