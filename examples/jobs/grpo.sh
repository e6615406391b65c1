#!/bin/sh
#SBATCH --job-name=grpo
#SBATCH --gres=gpu:1
# All of the job's devices are shared, and it holds them while it trains or samples. In the folder examples:
#   for seed in 1 2; do sbatch --interleave-group=pair jobs/grpo.sh $seed /tmp/grpo-$seed; done
# Three of them, or more, take turns as well; the site says how many may be in a group.
set -eu
seed=$1 out=$2
shift 2
exec python -m grpo --seed "$seed" --out "$out" "$@"
