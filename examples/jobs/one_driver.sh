#!/bin/sh
#SBATCH --job-name=one-driver
# A trainer in one group and a sampler in another, whose turns one process takes. In the folder examples:
#   for seed in 1 2; do
#       sbatch --interleave-group=trainers --interleave-role=trainer --gres=gpu:1 : \
#              --interleave-group=samplers --interleave-role=sampler --gres=gpu:1 jobs/one_driver.sh $seed /tmp/one-$seed
#   done
set -eu
seed=$1 out=$2
shift 2
mkdir -p "$out"
srun --het-group=1 python -m jobs.driven engine "$out" --seed "$seed" "$@" &
srun --het-group=0 python -m jobs.driven driver "$out" --seed "$seed" "$@" &
wait %1
wait %2
