#!/bin/sh
#SBATCH --job-name=two-groups
# A trainer in one group and a sampler in another: while one job trains, the other one samples. In examples:
#   for seed in 1 2; do
#       sbatch --interleave-group=trainers --interleave-role=trainer --gres=gpu:1 : \
#              --interleave-group=samplers --interleave-role=sampler --gres=gpu:1 jobs/two_groups.sh $seed /tmp/two-$seed
#   done
set -eu
seed=$1 out=$2
shift 2
mkdir -p "$out"
srun --het-group=0 python -m jobs.split trainer "$out" --seed "$seed" "$@" &
srun --het-group=1 python -m jobs.split sampler "$out" --seed "$seed" "$@" &
wait %1
wait %2
